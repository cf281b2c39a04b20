import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox import Detections
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.labels import TrueCounts, counting_pairs, labelled_detections
from tallybox.errors import InputError
from tests.support.detection_sets import CATEGORY_IDS, detections

BOX = [0.0, 0.0, 9.0, 9.0]


def image_with(scores: dict[int, float], image_id: int | str | None = 7) -> Detections:
    return Detections([BOX] * len(scores), list(scores.values()), list(scores), image_id=image_id)


def answers(images, labels, **options) -> list[tuple[int | str | None, int, int]]:
    pairs, truth = counting_pairs(images, labels, **options)
    ids = [images[index].image_id for index in pairs.image_index]
    return list(zip(ids, pairs.category_ids.tolist(), truth.tolist(), strict=True))


def test_pairs_are_what_is_there_and_the_two_likeliest_that_are_not():
    image = image_with({1: 0.2, 2: 0.9, 3: 0.3, 4: 0.4, 5: 0.04})
    assert answers([image], TrueCounts({7: {2: 3, 90: 1}})) == [(7, 2, 3), (7, 90, 1), (7, 4, 0), (7, 3, 0)]


def test_a_score_must_exceed_the_least_one():
    just_above = float(np.nextafter(np.float32(0.05), np.float32(1)))
    image = image_with({1: 0.05, 2: just_above})
    assert answers([image], TrueCounts({7: {}})) == [(7, 2, 0)]


def test_a_pair_that_nobody_counted_is_neither_scored_nor_taken_for_absent():
    labels = TrueCounts({7: {2: 1}}, unknown=frozenset({(7, 1)}))
    assert answers([image_with({1: 0.9, 3: 0.5})], labels) == [(7, 2, 1), (7, 3, 0)]


@given(detections(), st.dictionaries(st.sampled_from([*CATEGORY_IDS, 90]), st.integers(0, 5)))
def test_scored_pairs_are_some_of_all_pairs(image, counts):
    labels = TrueCounts({7: counts})
    every = answers([image], labels, every=True)
    scored = answers([image], labels)
    assert set(scored) <= set(every)
    assert {c for _, c, _ in every} == set(image.category_ids.tolist()) | {c for c, n in counts.items() if n}
    assert [pair for pair in scored if pair[2]] == [pair for pair in every if pair[2]]
    assert len(scored) == len(set(scored)) <= 2 + sum(n > 0 for n in counts.values())


def test_images_find_their_labels_and_sizes_and_the_undetected_come_last():
    labels = TrueCounts({7: {1: 2}, 8: {1: 1}, 9: {}}, {7: (640, 480), 8: (320, 240)})
    images = [image_with({1: 0.5}, 9), image_with({}, 5), image_with({1: 0.5}, 7)]
    with pytest.warns(UserWarning, match="no labels"):
        labelled = list(labelled_detections(images, labels))
    assert [(image.image_id, len(image), image.image_size) for image in labelled] == [
        (9, 1, None),
        (7, 1, (640, 480)),
        (8, 0, (320, 240)),
    ]


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([image_with({}, 7), image_with({}, 7)], "7"),
        ([image_with({18: 0.5}, "a.jpg"), image_with({18: 0.5}, "b/a.jpg")], "7"),
        ([image_with({}, None)], "image_id"),
        ([image_with({}, "8.jpg")], "8.jpg"),
        ([image_with({0: 0.5}, 7)], "category 0.*--names"),
        ([Detections([[500, 300, 1100, 700]], [0.5], [18], image_id=7)], "640×480"),
    ],
)
def test_detections_that_do_not_fit_their_labels_are_an_error(images, message):
    labels = TrueCounts({7: {18: 1}}, {7: (640, 480)}, {18: "dog"}, file_names={7: "a.jpg"})
    with pytest.raises(InputError, match=message):
        list(labelled_detections(images, labels))


def test_ids_without_match_on_both_sides_are_named_in_an_error_or_if_few_in_a_warning():
    labels = TrueCounts({image_id: {18: 1} for image_id in range(5)})

    def labelled(*ids):
        return list(labelled_detections([image_with({18: 0.5}, image_id) for image_id in ids], labels))

    with pytest.raises(InputError, match=r"2 of 5 .*\(3, 4\).* 2 images .*\(8, 9\)"):
        labelled(0, 1, 2, 8, 9)
    with pytest.warns(UserWarning, match=r"1 of 5 .*\(4\).* 1 images"):
        assert [len(image) for image in labelled(0, 1, 2, 3, 77)] == [1, 1, 1, 1, 0]


def test_labels_of_some_images_and_images_without_boxes_are_usual():
    labels = TrueCounts({image_id: {18: 1} for image_id in range(8)})
    assert len(list(labelled_detections([image_with({18: 0.5}, 1)], labels))) == 8  # the others have no boxes
    every = [image_with({18: 0.5}, image_id) for image_id in range(2, 50)]
    first = labels.only(sorted(labels.counts)[:4])
    assert len(list(labelled_detections(every[:6], first))) == 4  # left out, not without labels
    assert len(list(labelled_detections(every, labels.only([3, 4])))) == 2


def test_an_image_without_labels_has_no_pairs():
    with pytest.raises(InputError, match="8"):
        counting_pairs([image_with({}, 8)], TrueCounts({7: {}}))


def test_images_named_after_their_files_find_the_labels_of_these_files():
    names = {1: "a.jpg", 2: "val/b.jpg", 3: "x/c.jpg", 4: "y/c.jpg"}
    labels = TrueCounts({number: {18: number} for number in names}, file_names=names)
    images = [image_with({18: 0.5}, name) for name in ("a.jpg", "b.jpg", "y/c.jpg", "c.jpg", "other/x/c.jpg")]
    labelled = list(labelled_detections(images, labels))
    assert answers(labelled, labels) == [(1, 18, 1), (2, 18, 2), (4, 18, 4), (3, 18, 3)]
    assert all(len(image) for image in labelled), "c.jpg may be either and has no labels, other/x/c.jpg is x/c.jpg"
    below = [image_with({18: 0.5}, name) for name in ("photos/a.jpg", "photos/val/b.jpg")]
    labelled_below = list(labelled_detections(below, labels))
    assert [(image.image_id, len(image)) for image in labelled_below] == [(1, 1), (2, 1), (3, 0), (4, 0)]


def test_the_folders_of_images_and_labels_must_not_contradict_each_other():
    labels = TrueCounts({71: {18: 1}, 72: {18: 2}}, file_names={71: "kitchen/1.jpg", 72: "kitchen/2.jpg"})
    images = [image_with({18: 0.5}, name) for name in ("photos/kitchen/1.jpg", "bath/2.jpg")]
    with pytest.warns(UserWarning, match="no labels"):
        assert [len(image) for image in labelled_detections(images, labels)] == [1, 0]


def test_labels_take_the_ids_that_a_detector_gives_to_their_names():
    labels = TrueCounts(
        {7: {1: 3, 2: 5}}, categories={1: "Apple", 2: "pear", 3: "fig"}, unknown=frozenset({(7, 3), (7, 2)})
    )
    with pytest.warns(UserWarning, match=r"1 categories.*'pear'"):
        renumbered = labels.for_detections({0: "fig", 1: "cup", 2: "apple"})
    assert renumbered.counts == {7: {2: 3}}
    assert renumbered.categories == {0: "fig", 1: "cup", 2: "apple"}
    assert renumbered.labelled == {0, 2}
    assert renumbered.unknown == {(7, 0)}
    with pytest.raises(InputError, match=r"Apple.*cup"):
        labels.for_detections({0: "cup"})
    with pytest.warns(UserWarning, match=r"'aple'.*'apple'"):
        TrueCounts({7: {1: 3, 2: 5}}, categories={1: "aple", 2: "fig"}).for_detections({0: "fig", 1: "apple"})


def test_numbers_are_used_if_one_side_has_no_names():
    assert TrueCounts({7: {1: 3}}).for_detections({1: "cup", 2: "fig"}).categories == {1: "cup", 2: "fig"}
    with pytest.raises(InputError, match="1"):
        TrueCounts({7: {1: 3}}).for_detections({0: "cup"})
    assert TrueCounts({7: {5: 3}}).for_detections(None).counts == {7: {5: 3}}
    assert TrueCounts({7: {5: 3}}, categories={5: "bolt"}).for_detections(None).categories == {5: "bolt"}
    coco = TrueCounts({7: {18: 3}}, categories={18: "dog"}).for_detections(None)
    assert (coco.categories, coco.labelled) == (COCO_CATEGORIES, {18})


def test_own_names_without_ids_need_names_of_the_detections():
    labels = TrueCounts.of_pairs({(7, "bolt"): 3, (8, "dog"): 0})
    with pytest.raises(InputError, match=r"'bolt'.*--names"):
        labels.for_detections(None)
    assert labels.for_detections({3: "dog", 4: "bolt"}).counts == {7: {4: 3}, 8: {3: 0}}


@pytest.mark.parametrize(
    "counts", [{7: 3}, {(7, "dog"): -1}, {(7, 18): 0.5}, {(7, 18): True}, {(7, "dog"): 1, (7, 1): 1}]
)
def test_wrong_counts_of_pairs_are_an_error(counts):
    with pytest.raises(InputError, match="counts"):
        TrueCounts.of_pairs(counts)


def test_a_category_that_was_not_counted_is_not_zero():
    image = image_with({1: 0.9, 2: 0.8, 3: 0.7})
    labels = TrueCounts({7: {}}, labelled=frozenset({2}))
    assert answers([image], labels) == answers([image], labels, every=True) == [(7, 2, 0)]


@pytest.mark.parametrize(
    ("label", "photo"),
    [
        ("img_1", "2024/IMG_1.JPG"),
        ("b.png", "2024/b.jpg"),
        (285, "000000000285.jpg"),
        ("y/c.jpg", "y/c.jpg"),
        ("/home/me/kitchen/1.jpg", "kitchen/1.jpg"),
        (r"C:\photos\Kitchen\1.JPG", "kitchen/1.jpg"),
        ("kitchen/1", "home/kitchen/1.jpg"),
        ("./kitchen/1.jpg", "kitchen/1.jpg"),
    ],
)
def test_labels_find_their_photos_by_path_name_and_number(label, photo):
    others = ["bath/9.jpg", "x/d.jpg"]
    assert TrueCounts({label: {18: 1}}).of_photos([photo, *others]).file_names == {label: photo}


def test_a_label_of_two_photos_and_a_photo_with_two_labels_are_errors():
    with pytest.raises(InputError, match=r"'1'.*kitchen/1.jpg.*bath/1.jpg"):
        TrueCounts({"1": {}}).of_photos(["kitchen/1.jpg", "bath/1.jpg"])
    with pytest.raises(InputError, match=r"a.jpg"):
        TrueCounts({"a": {}, "a.png": {}}).of_photos(["a.jpg"])
