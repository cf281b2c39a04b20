import asyncio
import json
from functools import cache

import httpx
import numpy as np
import pytest

from tallybox.service.api import ServiceSettings, build_api, create_app
from tallybox.service.guard import Guard, Limits
from tests.support.estimators import small_estimator
from tests.support.photos import claiming

LIMITS = Limits(
    body_bytes=20_000, json_bytes=20_000, image_pixels=10_000, images=3, boxes=50, explained_boxes=20, seconds=0.5
)


class NoDetector:
    """What must never be asked here."""

    def detect(self, photos):
        raise AssertionError("an image that should have been refused reached the detector")


def strict_settings() -> ServiceSettings:
    return ServiceSettings(small_estimator(), NoDetector(), LIMITS)


@cache
def strict_app():
    return create_app(strict_settings())


JSON = {"content-type": "application/json"}


def send(method: str, path: str, *, app=None, **request) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app or strict_app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            return await client.request(method, path, **request)

    return asyncio.run(ask())


def refusal(status: int, method: str, path: str, **request) -> str:
    """Return the one line with which a request is refused."""
    answer = send(method, path, **request)
    assert answer.status_code == status, answer.text
    said = answer.json()
    assert list(said) == ["error"]
    assert len(said["error"].splitlines()) == 1
    return said["error"]


def images(number: int, boxes: int = 1) -> dict:
    image = {"boxes": [[0, 0, 5, 5]] * boxes, "scores": [0.5] * boxes, "category_ids": [18] * boxes}
    return {"images": [image] * number}


@pytest.mark.parametrize(
    ("content", "status"),
    [
        *((no_json, 400) for no_json in (b"", b"{", b"[" * 5000)),
        (b'{"images": 3}', 422),
        (b'{"images": [], "more": 1}', 422),
        (b'{"images": [{"boxes": [[0, 0, NaN, 1]], "scores": [1], "category_ids": [1]}]}', 422),
        (b'{"images": [{"boxes": [[5, 0, 1, 1]], "scores": [1], "category_ids": [1]}]}', 422),
        (b'{"images": [{"boxes": [[0, 0, 1, 1]], "scores": [1, 1], "category_ids": [1]}]}', 422),
        (b'{"images": [{"boxes": [[0, 0, 1, 1]], "scores": [1], "category_ids": [99999999999999999999]}]}', 422),
        (b'{"images": [], "categories": ["dragon"]}', 422),
        (b'{"images": [], "categories": ["\\ud800"]}', 400),
    ],
)
def test_malformed_bodies_are_refused_in_one_line(content, status):
    refusal(status, "POST", "/v1/count", content=content, headers=JSON)
    explained = content.replace(b"images", b"boxes")
    answer = send("POST", "/v1/explain", content=explained, headers=JSON)
    assert answer.status_code in (400, 422)


def test_boxes_far_outside_of_the_image_are_refused():
    far = {"boxes": [[0, 0, 5, 5], [9000, 0, 9005, 5]], "scores": [0.5] * 2, "category_ids": [1] * 2}
    assert "640" in refusal(422, "POST", "/v1/count", json={"images": [{**far, "size": [640, 480]}]})


@pytest.mark.parametrize(
    ("path", "request_", "noun"),
    [
        ("/v1/count", {"content": b" " * 20_001, "headers": JSON}, "bytes"),
        ("/v1/count", {"json": images(4)}, "images"),
        ("/v1/count", {"json": images(1, boxes=51)}, "boxes"),
        ("/v1/explain", {"json": {"boxes": [[0, 0, 1, 1]] * 21, "attention": [1] * 21}}, "boxes"),
    ],
)
def test_too_much_of_anything_is_refused(path, request_, noun):
    assert noun in refusal(413, "POST", path, **request_)


def test_a_connection_is_kept_only_if_the_body_was_read():
    """The server closes the others, so a client that is not told may lose its next request."""
    assert "connection" not in send("POST", "/v1/count", json=images(1)).headers
    unread = send("POST", "/v1/count/photo", content=b"x", headers={"content-type": "text/plain"})
    assert (unread.status_code, unread.headers["connection"]) == (415, "close")


def test_json_that_would_take_long_to_parse_is_refused():
    """While 16 MiB of boxes are parsed, for 0.8 s, the event loop answers nobody."""
    content = b'{"images":[{"boxes":[' + b"[1,2,3,4]," * 450_000
    assert len(content) < Limits().body_bytes
    app = create_app(ServiceSettings(small_estimator()))
    assert "bytes" in refusal(413, "POST", "/v1/count", app=app, content=content, headers=JSON)


async def chunks(*, pause: float = 0.0):
    for _ in range(2):
        yield b" "
        await asyncio.sleep(pause)


def test_bodies_without_a_length_or_that_dawdle_are_refused():
    assert "Content-Length" in refusal(400, "POST", "/v1/count", content=chunks(), headers=JSON)
    slow = {"content": chunks(pause=2), "headers": {**JSON, "content-length": "2"}}
    assert "0.5 s" in refusal(408, "POST", "/v1/count", **slow)


def test_an_answer_that_dawdles_is_ended():
    api = build_api(strict_settings())

    @api.get("/slow")
    async def slow():
        await asyncio.sleep(5)

    app = Guard(api, LIMITS, None, ())
    assert "0.5 s" in refusal(408, "GET", "/slow", app=app)


def test_large_bodies_of_many_clients_are_bounded_together():
    app = create_app(ServiceSettings(small_estimator(), limits=Limits(buffered_bytes=30)))

    async def ask_twice() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            headers = {**JSON, "content-length": "20"}
            sent = [client.post("/v1/count", content=chunks(pause=0.1), headers=headers) for _ in range(2)]
            return sorted(answer.status_code for answer in await asyncio.gather(*sent))

    assert asyncio.run(ask_twice()) == [400, 429]  # the first is not JSON
    assert app.buffered_bytes == 0


def test_other_content_types_and_methods_are_refused():
    refusal(415, "POST", "/v1/count", content=b"a=1", headers={"content-type": "application/x-www-form-urlencoded"})
    refusal(415, "POST", "/v1/explain", content=b"{}", headers={"content-type": "text/plain"})
    refusal(405, "GET", "/v1/count")
    refusal(404, "GET", "/v2/count")
    refusal(422, "GET", "/v1/scenes/toy?noise=nan")


@pytest.mark.parametrize("broken", ["text", "cut", "empty", "bomb", "warned", "large"])
def test_images_that_are_none_or_too_large_are_refused(broken):
    sides = {"bomb": 30_000, "warned": 12_000, "large": 200}  # Pillow warns of 12,000, which 0.2 wrote to its log
    whole = claiming(sides.get(broken, 50))  # and brings few pixels
    content = {"text": b"no image", "cut": whole[:30]}.get(broken, whole)
    app = create_app(ServiceSettings(small_estimator(), NoDetector(), Limits(image_pixels=10_000)))
    status = 413 if broken in sides else 422
    said = refusal(status, "POST", "/v1/count/photo", app=app, content=content, headers={"content-type": "image/png"})
    assert "/tmp" not in said


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *(
            ({"host": one}, 403)
            for one in ("evil.example", "", "127.0.0.1.evil.example", "[::1", "evil.com\\@localhost")
        ),
        *(({"host": one}, 200) for one in ("[::1]:8000", "localhost:8000", "LOCALHOST.", "counts.example")),
        *(({"origin": one}, 403) for one in ("http://evil.example", "null", "http://[::1")),
        ({"origin": "http://127.0.0.1:8000"}, 200),
    ],
)
def test_pages_elsewhere_cannot_drive_the_service(headers, status):
    app = create_app(ServiceSettings(small_estimator(), hosts=("counts.example",)))
    answer = send("POST", "/v1/count", app=app, json=images(1), headers=headers)
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("authorization", "status"),
    [(None, 401), ("Bearer wrong", 401), ("Bearer sécret", 401), ("secret", 401), ("Bearer secret", 200)],
)
def test_a_token_is_asked_for(authorization, status):
    app = create_app(ServiceSettings(small_estimator(), token="secret"))
    headers = {} if authorization is None else {"authorization": authorization.encode()}
    answer = send("POST", "/v1/count", app=app, json=images(1), headers=headers)
    assert answer.status_code == status
    assert send("GET", "/healthz", app=app).status_code == 200
    assert send("GET", "/v1/parameters", app=app).status_code == 401


def test_random_bytes_never_break_it():
    random = np.random.default_rng(0)
    for kind in ("application/json", "image/png", "image/jpeg"):
        for size in (1, 10, 1000):
            content = random.bytes(size)
            for path in ("/v1/count", "/v1/count/photo", "/v1/explain"):
                answer = send("POST", path, content=content, headers={"content-type": kind})
                assert 400 <= answer.status_code < 500
                assert json.loads(answer.content)["error"]
