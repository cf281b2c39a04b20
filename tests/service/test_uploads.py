import io

import httpx
import pytest
from PIL import Image

from tallybox.photos import sample_photos
from tests.support.pages import start_service, stop_service

BUSES, RIDERS, _ = sample_photos()


@pytest.fixture(scope="module")
def client(service):
    with httpx.Client(base_url=service.address, timeout=60) as made:
        yield made


def form(*photos) -> list:
    return [("photo", (photo.name, photo.read_bytes(), "image/jpeg")) for photo in photos]


def test_several_photos_of_a_form_are_counted_in_order_by_name(client):
    answer = client.post("/v1/count/photo", files=form(BUSES, RIDERS), data={"category": ["person", "horse"]})
    assert answer.status_code == 200, answer.text
    alone = [
        client.post(
            "/v1/count/photo?category=person&category=horse",
            content=photo.read_bytes(),
            headers={"content-type": "image/jpeg"},
        )
        for photo in (BUSES, RIDERS)
    ]
    images = answer.json()["images"]
    assert [image["image"] for image in images] == [BUSES.name, RIDERS.name]
    assert [image["counts"] for image in images] == [answer.json()["images"][0]["counts"] for answer in alone]


@pytest.mark.parametrize(
    ("files", "data", "said"),
    [
        ([("photo", ("notes.txt", b"no photo", "text/plain"))], {}, "notes.txt"),
        (form(RIDERS) * 33, {}, "32 files"),
        (form(BUSES), {"colour": "red"}, "category"),
        (form(BUSES), {"category": "unicorn"}, "unicorn"),
    ],
)
def test_wrong_forms_are_one_clear_line(client, files, data, said):
    answer = client.post("/v1/count/photo", files=files, data=data)
    assert answer.status_code == 422
    assert said in answer.json()["error"]
    assert "/tmp" not in answer.text


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=x"])
def test_a_body_that_is_no_form_is_refused(client, kind):
    answer = client.post("/v1/count/photo", content=b"--y\r\nnothing", headers={"content-type": kind})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


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
