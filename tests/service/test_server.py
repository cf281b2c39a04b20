import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from benchmarks.serve import LoadRequest, count_requests, read_answer
from benchmarks.synthetic_photos import made_up_photos
from click.testing import CliRunner

from tallybox.cli import cli
from tallybox.estimator.storage import save_fitted
from tallybox.photos.shipped import shipped_estimator
from tests.support.estimators import small_estimator
from tests.support.pages import start_service, stop_service

CLIENTS = 30


@pytest.fixture
def own_service():
    started = start_service()
    yield started
    started.process.kill()
    started.process.wait()
    started.process.stderr.close()


@pytest.mark.parametrize("learned", [{"categories": {1: "bolt"}}, {"detector": ("onnx:bolts.onnx",)}])
def test_an_estimator_of_another_detector_counts_no_photos(learned, tmp_path):
    save_fitted(replace(small_estimator().fitted, **learned), tmp_path / "own.safetensors")
    service = start_service("--estimator", str(tmp_path / "own.safetensors"))
    try:
        assert httpx.get(f"{service.address}/healthz").json()["counts_photos"] is False
    finally:
        stop_service(service)


def test_a_stop_finishes_what_was_accepted_and_takes_nothing_new(own_service):
    """SIGTERM arrives while requests are being counted, and while one is only half sent."""
    requests = count_requests(shipped_estimator(), made_up_photos(CLIENTS, seed=1)[0])
    host, port = own_service.address.removeprefix("http://").split(":")

    async def ask(request: LoadRequest, pause: float) -> bool:
        reader, writer = await asyncio.open_connection(host, int(port))
        content = request.to_bytes(f"{host}:{port}")
        writer.write(content[: len(content) // 2])
        await writer.drain()
        await asyncio.sleep(pause)
        writer.write(content[len(content) // 2 :])
        status, _, answer = await read_answer(reader)
        writer.close()
        return status == 200 and request.is_right(json.loads(answer))

    async def ask_and_stop() -> list[bool]:
        asking = [asyncio.create_task(ask(request, 0.05 * (index % 20))) for index, request in enumerate(requests)]
        await asyncio.sleep(0.4)
        own_service.process.send_signal(signal.SIGTERM)
        return await asyncio.gather(*asking)

    answers = asyncio.run(ask_and_stop())
    assert answers == [True] * CLIENTS
    assert own_service.process.wait(30) in (0, -signal.SIGTERM)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=2)


def test_a_stop_loses_no_request_on_connections_that_are_kept(own_service):
    """Every client sends its next request as soon as it has an answer, until an answer ends the connection."""
    requests = count_requests(shipped_estimator(), made_up_photos(40, seed=1)[0])
    host, port = own_service.address.removeprefix("http://").split(":")

    async def ask_until_closed(request: LoadRequest) -> int:
        reader, writer = await asyncio.open_connection(host, int(port))
        answers = 0
        while True:
            writer.write(request.to_bytes(f"{host}:{port}"))
            status, headers, content = await read_answer(reader)
            assert status == 200
            assert request.is_right(json.loads(content))
            answers += 1
            if headers.get("connection") == "close":
                assert await reader.read() == b""
                writer.close()
                return answers

    async def ask_and_stop() -> list[int]:
        asking = [asyncio.create_task(ask_until_closed(request)) for request in requests]
        await asyncio.sleep(1.5)
        own_service.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(asyncio.gather(*asking), 30)

    assert min(asyncio.run(ask_and_stop())) >= 1
    assert own_service.process.wait(30) in (0, -signal.SIGTERM)


LIMITED_SERVICE = """
import resource
import sys

from tallybox.estimator.storage import save_fitted
from tallybox.photos.shipped import shipped_estimator
from tallybox.service.api import ServiceSettings
from tallybox.service.limits import Limits
from tallybox.service.server import serve

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
settings = ServiceSettings(shipped_estimator(), limits=Limits(header_seconds=1.0, connections=int(sys.argv[1])))
serve(settings, "127.0.0.1", 0, on_start=lambda address: print(address, flush=True))
"""


@contextmanager
def running_with_limits(connections: int):
    """Run a service that allows so many connections, 200 open files, and a second for a header."""
    command = [sys.executable, "-c", LIMITED_SERVICE, str(connections)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        host, port = process.stdout.readline().strip().removeprefix("http://").split(":")
        yield process, (host, int(port))
        process.kill()


@pytest.fixture
def limited_service():
    with running_with_limits(connections=20) as running:
        yield running


def test_more_connections_than_open_files_log_nothing():
    with running_with_limits(connections=2000) as (process, address):
        opened = [socket.create_connection(address, timeout=10) for _ in range(400)]
        for connection in opened:
            while connection.recv(4096):
                pass
            connection.close()
        assert httpx.get(f"http://127.0.0.1:{address[1]}/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30) == ("", "")


@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\nhost: 127"], ids=["nothing", "half a header"])
def test_half_open_connections_are_limited_and_closed(limited_service, start):
    process, address = limited_service
    opened = [socket.create_connection(address, timeout=10) for _ in range(60)]
    for connection in opened[:20]:
        connection.sendall(start)
    begun = time.monotonic()
    answers = [b"".join(iter(lambda connection=connection: connection.recv(4096), b"")) for connection in opened]
    assert time.monotonic() - begun < 5
    assert sum(answer == b"" for answer in answers) == 20
    assert sum(b"503 Service Unavailable" in answer and b'{"error": ' in answer for answer in answers) == 40
    for connection in opened:
        connection.close()
    assert httpx.get(f"http://127.0.0.1:{address[1]}/healthz").status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("", "")


def test_a_header_that_dribbles_in_is_cut_off(limited_service):
    _, address = limited_service
    connection = socket.create_connection(address, timeout=0.1)
    begun = time.monotonic()
    is_open = True
    while is_open and time.monotonic() - begun < 10:
        try:
            connection.sendall(b"x")
            is_open = connection.recv(1) != b""
        except TimeoutError:
            continue
        except ConnectionError:
            is_open = False
    assert 0.5 < time.monotonic() - begun < 5
    connection.close()


def test_a_port_in_use_is_one_line(service):
    port = service.address.rsplit(":", 1)[1]
    ran = CliRunner().invoke(cli, ["serve", "--port", port])
    assert ran.exit_code == 1
    assert "is not: " in ran.stderr.splitlines()[-1]


def test_ctrl_c_stops_it_without_a_fuss(own_service):
    own_service.process.send_signal(signal.SIGINT)
    assert own_service.process.wait(30) == 0
    assert own_service.process.stderr.read() == ""
