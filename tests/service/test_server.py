from __future__ import annotations

import asyncio
import json
import signal
import socket

import pytest
from click.testing import CliRunner

from tallybox.bench.load import Question, _answer, _request
from tallybox.bench.photos import made_up_photos
from tallybox.bench.serve import count_questions
from tallybox.cli import cli
from tallybox.photos.shipped import shipped_estimator
from tests.support.pages import start_service

CLIENTS = 30


@pytest.fixture
def own_service():
    started = start_service()
    yield started
    started.process.kill()
    started.process.wait()
    started.process.stderr.close()


def test_a_stop_finishes_what_was_accepted_and_takes_nothing_new(own_service):
    """SIGTERM arrives while requests are being counted, and while one is only half sent."""
    questions = count_questions(shipped_estimator(), made_up_photos(CLIENTS, seed=1)[0])
    host, port = own_service.address.removeprefix("http://").split(":")

    async def ask(question: Question, pause: float) -> bool:
        reader, writer = await asyncio.open_connection(host, int(port))
        request = _request(f"{host}:{port}", question)
        writer.write(request[: len(request) // 2])
        await writer.drain()
        await asyncio.sleep(pause)
        writer.write(request[len(request) // 2 :])
        status, content = await _answer(reader)
        writer.close()
        return status == 200 and question.is_right(json.loads(content))

    async def ask_and_stop() -> list[bool]:
        asking = [asyncio.create_task(ask(question, 0.05 * (place % 20))) for place, question in enumerate(questions)]
        await asyncio.sleep(0.4)
        own_service.process.send_signal(signal.SIGTERM)
        return await asyncio.gather(*asking)

    answers = asyncio.run(ask_and_stop())
    assert answers == [True] * CLIENTS
    assert own_service.process.wait(30) in (0, -signal.SIGTERM)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=2)


def test_a_port_in_use_is_one_line(service):
    port = service.address.rsplit(":", 1)[1]
    ran = CliRunner().invoke(cli, ["serve", "--port", port])
    assert ran.exit_code == 1
    assert "is not: " in ran.stderr.splitlines()[-1]


def test_ctrl_c_stops_it_without_a_fuss(own_service):
    own_service.process.send_signal(signal.SIGINT)
    assert own_service.process.wait(30) == 0
    assert own_service.process.stderr.read() == ""
