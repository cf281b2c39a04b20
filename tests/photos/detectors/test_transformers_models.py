import numpy as np
import pytest
import torch

from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.errors import InputError, TallyboxError
from tallybox.photos.detector import detector_of
from tallybox.photos.detectors import TransformersDetector
from tests.support.small_photos import small_photos, with_fewer_pixels

pytest.importorskip("transformers", reason="transformers is not installed")

from tests.support.transformers_models import save_detr, save_grounding_dino, save_owlvit

DETR_NAMES = {label: COCO_CATEGORIES.get(label, "N/A") for label in range(91)}
PHRASES = ("a cup", "red")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        "detr": save_detr(folder / "detr", DETR_NAMES),
        "owlvit": save_owlvit(folder / "owlvit"),
        "grounding_dino": save_grounding_dino(folder / "grounding_dino"),
    }


@torch.inference_mode()
def directly(detector: TransformersDetector, photo, **inputs):
    """Return what transformers' own post-processing gives for one photo."""
    prepared = detector.processor(images=[photo.image], return_tensors="pt", **inputs)
    outputs = detector.model(**prepared)
    grounded = "post_process_grounded_object_detection"
    post_process = getattr(detector.processor, grounded if inputs else "post_process_object_detection")
    return post_process(outputs, threshold=0.01, target_sizes=[photo.size_wh[::-1]])[0], outputs, prepared


def boxes_in(photo, boxes):
    return np.asarray(boxes).clip(0, np.tile(photo.size_wh, 2))


def test_a_model_of_coco_has_its_categories_and_the_boxes_of_its_own_post_processing(models):
    detector = detector_of(f"transformers:{models['detr']}", device="cpu")
    assert detector.categories == COCO_CATEGORIES
    for photo, found in zip(small_photos(), detector.detect(small_photos()), strict=True):
        expected, _, _ = directly(detector, photo)
        named = np.array([int(label) in COCO_CATEGORIES for label in expected["labels"]])
        assert named.sum() == len(found) > 0
        np.testing.assert_allclose(found.boxes, boxes_in(photo, expected["boxes"])[named], rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(found.scores, expected["scores"][named], rtol=1e-5)
        np.testing.assert_array_equal(found.category_ids, expected["labels"][named])
        assert (found.image_id, found.image_size) == (photo.name, photo.size_wh)


def test_owlvit_finds_phrases(models):
    detector = detector_of(f"transformers:{models['owlvit']}", texts=PHRASES, device="cpu")
    assert detector.categories == dict(enumerate(PHRASES))
    seen = set()
    for photo, found in zip(small_photos(), detector.detect(small_photos()), strict=True):
        expected, _, _ = directly(detector, photo, text=[list(PHRASES)])
        np.testing.assert_allclose(found.boxes, boxes_in(photo, expected["boxes"]), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(found.scores, expected["scores"], rtol=1e-5)
        np.testing.assert_array_equal(found.category_ids, expected["labels"])
        seen |= set(found.category_ids.tolist())
    assert seen == {0, 1}


def test_grounding_dino_scores_a_phrase_by_the_mean_of_its_tokens(models):
    texts = ("a red apple", "Cups.", "green tea")
    detector = detector_of(f"transformers:{models['grounding_dino']}", texts=texts, device="cpu")
    assert detector.categories == {0: "a red apple", 1: "Cups", 2: "green tea"}
    # [CLS] a red apple . cup ##s . green tea . [SEP]
    tokens = ([1, 2, 3], [5, 6], [8, 9])
    for photo, found in zip(small_photos(), detector.detect(small_photos()), strict=True):
        expected, outputs, prepared = directly(detector, photo, text="a red apple. cups. green tea.")
        assert prepared["input_ids"].shape[1] == 12
        by_token = outputs.logits[0].sigmoid()  # [queries, tokens]
        by_phrase = torch.stack([by_token[:, own].mean(1) for own in tokens], 1)
        enough = (by_phrase.max(1).values > 0.01).numpy()
        np.testing.assert_allclose(found.scores, by_phrase.max(1).values[enough], rtol=1e-5)
        np.testing.assert_array_equal(found.category_ids, by_phrase.argmax(1)[enough])
        # Its own post-processing keeps all queries here, and so must we.
        assert len(expected["boxes"]) == len(found) == len(by_phrase)
        np.testing.assert_allclose(found.boxes, boxes_in(photo, expected["boxes"]), rtol=1e-4, atol=1e-3)


def test_phrases_are_demanded_and_refused(models):
    with pytest.raises(InputError, match=r"owlvit .*--text PHRASE"):
        detector_of(f"transformers:{models['owlvit']}")
    with pytest.raises(InputError, match=r"detr .*--text"):
        detector_of(f"transformers:{models['detr']}", texts=["a cup"])
    for texts, said in ((["a cup", " a cup"], "'a cup'"), (["..."], r"'\.\.\.'"), (["no. 5"], r"'no\. 5'")):
        with pytest.raises(InputError, match=said):
            detector_of(f"transformers:{models['owlvit']}", texts=texts)
    for name, texts in (("owlvit", ["dog " * 20]), ("grounding_dino", ["red", *("cup " * n for n in range(1, 9))])):
        too_long = detector_of(f"transformers:{models[name]}", texts=texts, device="cpu")
        with pytest.raises(InputError):
            too_long.detect(small_photos())


def test_what_cannot_be_loaded_is_one_line(tmp_path, models):
    from transformers import ViTConfig

    ViTConfig().save_pretrained(tmp_path / "vit")
    with pytest.raises(TallyboxError, match="ViTConfig"):
        detector_of(f"transformers:{tmp_path / 'vit'}")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "empty").mkdir()
    (tmp_path / "weightless").mkdir()
    (tmp_path / "weightless" / "config.json").write_bytes((models["detr"] / "config.json").read_bytes())
    for name in ("broken", "empty", "weightless"):
        with pytest.raises(TallyboxError, match=f"Cannot load .*{name}") as caught:
            detector_of(f"transformers:{tmp_path / name}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "texts"), [("detr", ()), ("owlvit", PHRASES), ("grounding_dino", PHRASES[:1])])
def test_boxes_are_in_the_photos_own_pixels(models, name, texts):
    detector = detector_of(f"transformers:{models[name]}", texts=texts, device="cpu")
    (photo,) = small_photos([(64, 48)])
    (found,), (twice,) = detector.detect([photo]), detector.detect([with_fewer_pixels(photo)])
    assert twice.image_size == (128, 96)
    np.testing.assert_allclose(twice.boxes, 2 * found.boxes, rtol=1e-4, atol=1e-3)
