import io
from contextlib import suppress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from starlette.exceptions import HTTPException

from tallybox.photos import sample_photos
from tallybox.service.uploads import parse_form

BUSES, RIDERS, _ = sample_photos()
BINARY = st.binary(max_size=200).filter(lambda content: b"BOUNDARY" not in content)


@pytest.fixture(scope="module")
def client(service):
    with httpx.Client(base_url=service.address, timeout=60) as made:
        yield made


def form(*photos) -> list:
    return [("photo", (photo.name, photo.read_bytes(), "image/jpeg")) for photo in photos]


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="ascii", exclude_characters='\\"\r\n\0'), min_size=1), BINARY), min_size=1
    )
)
def test_files_come_out_of_a_form_as_they_went_in(files):
    # As httpx writes it, the writer that clients use.
    request = httpx.Request(
        "POST",
        "http://localhost",
        files=[("photo", (name, content, "image/jpeg")) for name, content in files],
        headers={"content-type": "multipart/form-data; boundary=BOUNDARY"},
    )
    uploads = parse_form(request.headers["content-type"], request.read())
    assert [content for _, content in uploads.files] == [content for _, content in files]
    assert uploads.categories == []


@given(st.binary(max_size=300), st.binary(max_size=40))
def test_any_other_body_is_refused_or_read(body, boundary):
    content_type = f"multipart/form-data; boundary={boundary.decode('latin-1')}"
    for tried in (body, b"--" + boundary + b"\r\n" + body + b"\r\n--" + boundary + b"--"):
        with suppress(HTTPException):
            assert parse_form(content_type, tried).files is not None


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


def test_a_photo_comes_back_outlined(client):
    answer = client.post("/v1/outline", files=form(RIDERS))
    assert answer.headers["content-type"] == "image/jpeg"
    outlined, photo = (Image.open(io.BytesIO(content)) for content in (answer.content, RIDERS.read_bytes()))
    assert outlined.width == photo.width
    assert outlined.height > photo.height  # the counts stand below
    assert not outlined.getexif()
    named = client.post(
        "/v1/outline?category=horse", content=RIDERS.read_bytes(), headers={"content-type": "image/jpeg"}
    )
    assert named.status_code == 200
    assert named.content != answer.content


@pytest.mark.parametrize(
    ("path", "files", "data", "said"),
    [
        ("/v1/count/photo", [("photo", ("notes.txt", b"no photo", "text/plain"))], {}, "notes.txt must be an image"),
        ("/v1/count/photo", form(BUSES) * 33, {}, "a form must have 1 to 32 files, but got 33"),
        ("/v1/count/photo", form(BUSES), {"colour": "red"}, "must be files, or texts named category"),
        ("/v1/count/photo", form(BUSES), {"category": "unicorn"}, "unicorn"),
        ("/v1/outline", form(BUSES, RIDERS), {}, "one photo is outlined at a time, but got 2"),
    ],
)
def test_wrong_forms_are_one_clear_line(client, path, files, data, said):
    answer = client.post(path, files=files, data=data)
    assert answer.status_code == 422
    assert said in answer.json()["error"]


def test_a_form_that_was_cut_short_is_refused(client):
    request = client.build_request("POST", "/v1/count/photo", files=form(BUSES))
    cut = request.read()[:-30]
    answer = client.post("/v1/count/photo", content=cut, headers={"content-type": request.headers["content-type"]})
    assert answer.status_code == 422
    assert answer.json()["error"] == "a form must arrive whole, but its last boundary is missing"
