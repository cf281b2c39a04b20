"""Matching: images of several sources, or of a source and an estimator, under the same category ids, by name."""

from collections.abc import Iterable, Iterator

from tallybox.detections.categories import check_common_names, check_known_ids, is_own, listed_names, match_categories
from tallybox.detections.detections import Detections
from tallybox.errors import InputError, InputTypeError


def match_images(images: Iterable[Detections], names: dict[int, str], *, named: bool = False) -> Iterator[Detections]:
    """Yield images under common category ids, matched by name: those of ``names``, by id, and new ones for others.

    New names are added to ``names``. Images without names keep their ids, which must be COCO's if the images that
    ``names`` come from are ``named``.
    """
    known = dict(names)
    last, ids = None, dict[int, int]()  # the images of a file share their names
    for image in images:
        if not isinstance(image, Detections):
            raise InputTypeError(
                f"{type(image).__name__} is not the Detections of an image; make them with "
                "Detections(boxes, scores, category_ids) or Detections.from_torchvision, from_supervision …"
            )
        if not image.category_names:
            check_known_ids(image.category_ids.tolist(), known, f"Image {image.image_id!r}")
            if named and len(image) and is_own(known):
                raise InputError(
                    f"Image {image.image_id!r} has category ids without names, but the estimator was fitted to named "
                    f"categories ({listed_names(known, known)}). Give names for the ids: category_names= (--names "
                    "data.yaml)"
                )
            yield image
            continue
        if image.category_names != last:
            last = image.category_names
            check_common_names(last, known, "the detections")
            ids = match_categories(last, names)
            names |= {ids[key]: name for key, name in last.items() if ids[key] not in names}
        yield image.renumbered(ids, names)
