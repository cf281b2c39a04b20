import json
from dataclasses import asdict

import httpx
import numpy as np
import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox import Counter, PresenceCounter
from tallybox.explain.explained_count import explain_component
from tallybox.explain.scenes import cats
from tallybox.photos import sample_photos
from tallybox.photos.images import read_photo
from tallybox.photos.shipped import shipped_estimator
from tests.support.photos import embedded_detector

PHOTOS = made_up_photos(6, seed=5)[0]
BUSES, RIDERS, _ = sample_photos()


@pytest.fixture(scope="module")
def client(service):
    with httpx.Client(base_url=service.address, timeout=60) as made:
        yield made


def as_request(image) -> dict:
    return {
        "image": image.image_id,
        "boxes": image.boxes.tolist(),
        "scores": image.scores.tolist(),
        "category_ids": image.category_ids.tolist(),
        "size": list(image.image_size),
    }


def assert_as_predicted(counts: dict, predicted: dict) -> None:
    estimator = shipped_estimator()
    expected = {estimator.category_name(key): said.to_dict() for key, said in predicted.items()}
    assert counts.keys() == expected.keys()
    for name, said in counts.items():
        assert said == pytest.approx(expected[name], abs=2e-3)


def test_counts_are_the_librarys(client):
    answer = client.post("/v1/count", json={"images": [as_request(image) for image in PHOTOS]})
    assert answer.status_code == 200
    for image, said in zip(PHOTOS, answer.json()["images"], strict=True):
        assert said["image"] == image.image_id
        assert_as_predicted(said["counts"], shipped_estimator().predict(image))


def test_named_categories_are_answered_for(client):
    asked = {"images": [as_request(PHOTOS[0])], "categories": ["dog", 1, "dog", "zebra"]}
    counts = client.post("/v1/count", json=asked).json()["images"][0]["counts"]
    assert_as_predicted(counts, shipped_estimator().predict(PHOTOS[0], ["dog", 1, "zebra"]))


def test_class_numbers_are_refused(client):
    images = [as_request(PHOTOS[0]), {"boxes": [[0, 0, 9, 9]] * 2, "scores": [0.9] * 2, "category_ids": [0, 16]}]
    answer = client.post("/v1/count", json={"images": images})
    assert answer.status_code == 422
    assert "images[1]" in answer.text


def test_a_photo_is_counted_as_the_library_counts_it(client):
    answer = client.post(
        "/v1/count/photo?category=person&category=bus&detections=true&boxes=true",
        content=BUSES.read_bytes(),
        headers={"content-type": "image/jpeg"},
    )
    assert answer.status_code == 200
    seen = embedded_detector().detect([read_photo(BUSES)])[0]
    said = answer.json()["images"][0]
    assert_as_predicted(said["counts"], shipped_estimator().predict(seen, ["person", "bus"]))
    assert said["detections"]["boxes"] == pytest.approx(seen.boxes, abs=1e-3)
    explained = shipped_estimator().explain(seen, ["bus"])[6]
    buses = said["boxes"]["bus"]
    assert buses["label"] == "2 buses"
    assert sorted(buses["presence"]) == pytest.approx(sorted(explained.presence), abs=1e-3)
    assert buses["duplicate_of"][:2] == [0, 1]
    assert sum(buses["scores"]) == pytest.approx(buses["baselines"]["sum"], abs=1e-3)


def test_an_explanation_is_the_librarys(client):
    boxes, attention = cats().numpy(), np.array([1.0, 0.5, 0.25, 0.75], np.float32)
    for component, layer in (("counter", Counter(10)), ("presence", PresenceCounter(10))):
        asked = {"boxes": boxes.tolist(), "attention": attention.tolist(), "component": component}
        explained = asdict(explain_component(boxes, attention, layer))
        assert client.post("/v1/explain", json=asked).json() == json.loads(json.dumps(explained))


def test_the_estimator_explains_boxes_of_a_photo_as_it_counts_them(client):
    image, key = PHOTOS[0], int(PHOTOS[0].category_ids[0])
    others = [box for box, category in enumerate(image.category_ids) if category != key]
    own = image.of_category(key)
    asked = {
        "component": "estimator",
        "category": key,
        "boxes": own.boxes.tolist(),
        "attention": own.scores.tolist(),
        "context": {
            "boxes": image.boxes[others].tolist(),
            "scores": image.scores[others].tolist(),
            "category_ids": image.category_ids[others].tolist(),
            "size": list(image.image_size),
        },
    }
    said = client.post("/v1/explain", json=asked).json()
    expected = shipped_estimator().predict(image, [key])[key]
    assert (said["count"], said["low"], said["high"]) == (expected.count, expected.low, expected.high)
    assert said["boxes"] == own.boxes.tolist()


def test_bent_activations_are_used(client):
    straight = [[step / 4 for step in range(5)]] * 8
    bent = [*straight[:1], [0, 0.75, 0.75, 1, 1], *straight[2:]]
    asked = {"boxes": [[0, 0, 10, 10], [3, 0, 13, 10]], "attention": [0.9, 0.8]}
    plain = client.post("/v1/explain", json=asked).json()["count"]
    assert client.post("/v1/explain", json={**asked, "activations": straight}).json()["count"] == pytest.approx(plain)
    assert client.post("/v1/explain", json={**asked, "activations": bent}).json()["count"] > plain + 0.05
    falling = [[0, 0.5, 0.25, 1, 1]] * 8
    refused = client.post("/v1/explain", json={**asked, "activations": falling})
    assert refused.status_code == 422
    refused = client.post("/v1/explain", json={**asked, "activations": straight[:7]})
    assert refused.status_code == 422
    assert "activations" in refused.json()["error"]


def test_every_set_of_parameters_counts(client):
    sets = client.get("/v1/parameters").json()
    assert {"untrained", "toy-0.5-0.5"} <= {one["name"] for one in sets["counter"]}
    assert {"untrained", "toy-0.5-0.5-3", "photo-1"} <= {one["name"] for one in sets["presence"]}
    assert {one["scenes"] for listed in sets.values() for one in listed} == {"all", "toy", "photo"}
    for component, listed in sets.items():
        for one in listed[:4] + listed[-2:]:
            asked = {"component": component, "parameters": one["name"], "boxes": [[0, 0, 9, 9]], "attention": [0.7]}
            assert client.post("/v1/explain", json=asked).status_code == 200


def test_scenes_can_be_counted(client):
    for scene in [*client.get("/v1/scenes").json(), client.get("/v1/scenes/toy?side_length=0&noise=1&seed=3").json()]:
        asked = {"boxes": scene["boxes"], "attention": scene["attention"]}
        assert client.post("/v1/explain", json=asked).status_code == 200


def test_pages_may_load_nothing_from_elsewhere(client):
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    assert "//" not in page.text


@pytest.mark.parametrize("path", ["/assets/..%2f..%2fservice.py", "/assets/%2fetc%2fpasswd", "/x", "/docs", "/redoc"])
def test_no_other_file_is_served(client, path):
    assert client.get(path).status_code == 404


def test_categories_are_listed(client):
    listed = client.get("/v1/categories").json()
    assert len(listed) == 80
    assert listed[0] == {"id": 1, "name": "person", "learned": True}


def test_sample_photos_lead_with_the_suitcases_and_their_truth(client):
    photos = client.get("/v1/photos").json()
    assert photos[0] == {"name": "lobby_with_suitcases.jpg", "truth": {"suitcase": 12}}
    for photo in photos:
        assert client.get(f"/photos/{photo['name']}").headers["content-type"] == "image/jpeg"


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
