import io

import httpx
import pytest
from PIL import Image

from tallybox.photos import sample_photos
from tests.support.pages import start_service, stop_service

RIDERS = sample_photos()[1]


@pytest.fixture(scope="module")
def client(service):
    with httpx.Client(base_url=service.address, timeout=60) as made:
        yield made


def test_a_photo_is_counted_for_the_named_categories(client):
    answer = client.post(
        "/v1/count/photo?category=person&category=horse",
        content=RIDERS.read_bytes(),
        headers={"content-type": "image/jpeg"},
    )
    (image,) = answer.json()["images"]
    assert {name: count["count"] for name, count in image["counts"].items()} == {"person": 2, "horse": 2}


@pytest.mark.parametrize(
    ("content", "kind", "query", "status", "said"),
    [
        (b"no photo", "image/jpeg", "", 422, "photo"),
        (b"", "image/jpeg", "", 422, "photo"),
        (RIDERS.read_bytes(), "image/jpeg", "?category=unicorn", 422, "unicorn"),
        (b"--x--", "multipart/form-data; boundary=x", "", 415, "Content-Type"),
    ],
)
def test_wrong_uploads_are_one_clear_line(client, content, kind, query, status, said):
    answer = client.post(f"/v1/count/photo{query}", content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_heic_is_counted_at_once():
    """The first request of a service, before any other photo was read."""
    heif = pytest.importorskip("pillow_heif", reason="needs the package pillow-heif")
    content = io.BytesIO()
    heif.from_pillow(Image.open(RIDERS)).save(content, format="HEIF")
    started = start_service()
    try:
        answer = httpx.post(
            f"{started.address}/v1/count/photo",
            content=content.getvalue(),
            headers={"content-type": "image/heic"},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["images"][0]["counts"]["horse"]["count"] == 2
    finally:
        stop_service(started)
