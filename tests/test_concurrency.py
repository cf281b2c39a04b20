import importlib
import os
import threading
import time

import pytest
import torch

from tallybox import concurrency
from tallybox.concurrency import call_single_threaded, kernel_threads, map_in_order, single_threaded_torch


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_and_few_items_are_taken_ahead(threads):
    taken = []

    def items():
        for item in range(20):
            taken.append(item)
            yield item

    def work(item):
        time.sleep(0.002 * (item % 3))
        return item * item

    for place, result in enumerate(map_in_order(work, items())):
        assert result == place * place
        assert len(taken) <= place + 1 + threads
    assert place == 19


def test_each_item_has_one_thread_of_torch_and_the_caller_all_as_before(threads):
    inside = list(map_in_order(lambda _: (torch.get_num_threads(), kernel_threads()), range(4)))
    assert inside == [(1, 1)] * 4
    assert torch.get_num_threads() == kernel_threads() == threads
    assert threads_of_a_new_thread() == threads


def test_what_goes_wrong_in_an_item_or_between_them_is_raised(threads):
    def broken():
        yield 1
        raise ValueError("no more")

    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda item: 1 // item, [1, 0]))
    with pytest.raises(ValueError, match="no more"):
        list(map_in_order(abs, broken()))
    assert torch.get_num_threads() == threads


def test_a_caller_may_stop_early(threads):
    results = map_in_order(abs, range(1000))
    assert next(results) == 0
    results.close()
    assert torch.get_num_threads() == threads


def test_kernels_keep_their_threads_also_in_nested_blocks(threads):
    with single_threaded_torch(), single_threaded_torch():
        assert torch.get_num_threads() == 1
        assert kernel_threads() == threads
    assert torch.get_num_threads() == kernel_threads() == threads


def threads_of_a_new_thread() -> int:
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def test_threads_that_start_meanwhile_keep_the_usual_number(threads):
    with single_threaded_torch():
        assert threads_of_a_new_thread() == threads
    results = map_in_order(lambda _: torch.get_num_threads(), range(9))
    assert next(results) == 1
    assert threads_of_a_new_thread() == threads
    results.close()
    assert threads_of_a_new_thread() == threads


def test_a_single_threaded_call_changes_no_thread_that_starts_meanwhile(threads):
    def numbers():
        return torch.get_num_threads(), kernel_threads()

    found, stopped = [call_single_threaded(numbers)], threading.Event()

    def call_often():
        while not stopped.is_set():
            found.append(call_single_threaded(numbers))

    caller = threading.Thread(target=call_often)
    caller.start()
    started = {threads_of_a_new_thread() for _ in range(500)}
    stopped.set()
    caller.join()
    assert started == {threads}
    assert set(found) == {(1, 1)}
    assert torch.get_num_threads() == threads


def test_import_without_fork(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork")
    importlib.reload(concurrency)
