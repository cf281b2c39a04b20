import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import httpx
import pytest
from benchmarks.serve import LoadRequest, count_requests, read_answer
from benchmarks.synthetic_photos import made_up_photos

from tallybox.estimator.fitted import save_fitted
from tallybox.photos.shipped import sample_photos, shipped_estimator
from tests.support.commands import run
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


def test_an_estimator_of_another_detector_counts_no_photos_and_says_why(tmp_path):
    save_fitted(replace(small_estimator().fitted, detector=("onnx:bolts.onnx",)), tmp_path / "own.safetensors")
    service = start_service("--estimator", str(tmp_path / "own.safetensors"))
    try:
        assert httpx.get(f"{service.address}/healthz").json()["counts_photos"] is False
        assert httpx.get(f"{service.address}/v1/photos").json() == []
        answer = httpx.post(
            f"{service.address}/v1/count/photo",
            content=sample_photos()[1].read_bytes(),
            headers={"content-type": "image/jpeg"},
        )
        assert answer.status_code == 503
        assert "onnx:bolts.onnx" in answer.json()["error"]
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


GET = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"


def answer_to(address: tuple[str, int], content: bytes) -> bytes:
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(content)
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.slow
def test_1100_half_open_connections_do_not_stop_the_service(own_service):
    """Half of them send nothing, half of them a part of a header."""
    host, port = own_service.address.removeprefix("http://").split(":")
    address = (host, int(port))
    opened = [socket.create_connection(address, timeout=10) for _ in range(1100)]
    try:
        for connection in opened[::2]:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127")
        for _ in range(3):
            begun = time.monotonic()
            assert answer_to(address, GET).startswith(b"HTTP/1.1 200")
            assert time.monotonic() - begun < 5
        own_service.process.send_signal(signal.SIGTERM)
        assert own_service.process.wait(30) == 0
    finally:
        for connection in opened:
            connection.close()
    assert own_service.process.stderr.read() == ""


LIMITED_SERVICE = """
from tallybox.photos.shipped import shipped_estimator
from tallybox.service.api import ServiceSettings
from tallybox.service.guard import Limits
from tallybox.service.server import serve

settings = ServiceSettings(shipped_estimator(), limits=Limits(header_seconds=1.0))
serve(settings, "127.0.0.1", 0, on_start=lambda address: print(address, flush=True))
"""


@pytest.fixture
def hasty_service():
    """A service that allows one second for a header."""
    command = [sys.executable, "-c", LIMITED_SERVICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        host, port = process.stdout.readline().strip().removeprefix("http://").split(":")
        yield host, int(port)
        process.kill()


def test_a_header_that_dribbles_in_is_cut_off(hasty_service):
    connection = socket.create_connection(hasty_service, timeout=0.1)
    connection.sendall(b"GET / HTTP/1.1\r\n")
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


@pytest.mark.parametrize("chunks", [b"ZZZ\r\nabc", b"3\r\nabc\r\n-1\r\n", b"3\r\nabcdef\r\n0\r\n\r\n"])
def test_malformed_chunks_are_answered_with_json(service, chunks):
    host, port = service.address.removeprefix("http://").split(":")
    header = b"POST /v1/count HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    answer = answer_to((host, int(port)), header + b"transfer-encoding: chunked\r\n\r\n" + chunks)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert list(json.loads(body)) == ["error"]


def test_it_listens_on_ipv6_too():
    service = start_service("--host", "::1")
    try:
        assert httpx.get(f"{service.address}/healthz").status_code == 200
    finally:
        assert stop_service(service) == 0


def test_a_port_in_use_is_one_line(service):
    port = service.address.rsplit(":", 1)[1]
    ran = run("serve", "--port", port)
    assert ran.exit_code == 1
    assert port in ran.stderr.splitlines()[-1]


def test_ctrl_c_stops_it_without_a_fuss(own_service):
    own_service.process.send_signal(signal.SIGINT)
    assert own_service.process.wait(30) == 0
    assert own_service.process.stderr.read() == ""
