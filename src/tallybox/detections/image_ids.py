"""Checks that detections and labels name the same images in the same way, and finds the photo of each label."""

import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath

from tallybox.detections.detections import ImageId
from tallybox.errors import InputError

MANY_UNMATCHED = 0.25  # of the labelled images
NAMED_IDS = 3
PLAIN_NUMBER = re.compile(r"[0-9]{1,15}(\.0+)?", re.ASCII)


def match_photos(names: Mapping[ImageId, str], photo_ids: Sequence[str]) -> dict[ImageId, str]:
    """Return the photo of each label that has one; ``names`` are the ids or file names in the labels.

    A photo is found by its path, else by its name, with or without a suffix, in any case, and by its number, where no
    other photo has the same. Where both name folders, these must be the same.

    >>> match_photos({7: "7", "b": "b"}, ["2024/0007.jpg", "2024/b.JPG", "c.jpg"])
    {7: '2024/0007.jpg', 'b': '2024/b.JPG'}
    """
    by_path = {photo_id: [photo_id] for photo_id in photo_ids}
    by_meaning: dict[float | str, list[str]] = {}
    for photo_id in photo_ids:
        by_meaning.setdefault(_meaning(photo_id), []).append(photo_id)
    matches: dict[ImageId, str] = {}
    for label, name in names.items():
        candidates = by_path.get(name) or [
            photo_id for photo_id in by_meaning.get(_meaning(name), []) if may_be_one_photo(name, photo_id)
        ]
        if len(candidates) == 1:
            matches[label] = candidates[0]
    labels_of = Counter(matches.values())
    for label, photo_id in matches.items():
        if labels_of[photo_id] > 1:
            raise InputError(f"each photo must be labelled once, but two labels are of {photo_id!r}; one is {label!r}")
    return matches


def check_photos(matches: Mapping[ImageId, str], labels: Collection[ImageId], photo_ids: Sequence[str]) -> None:
    """Raise where labels and photos seem not to belong together; warn of labels that `match_photos` left out."""
    labelled = set(matches.values())
    unlabelled = [photo_id for photo_id in photo_ids if photo_id not in labelled]
    unmatched = [label for label in labels if label not in matches]
    check_ids(unlabelled, unmatched, len(labels), "the former are left out")
    if unmatched and not unlabelled:
        warnings.warn(f"{len(unmatched)} labels are of no photo ({shown(unmatched)}); they are left out", stacklevel=2)


def check_ids(unlabelled: Sequence[ImageId], undetected: Sequence[ImageId], labelled: int, consequence: str) -> None:
    """Raise where detections and labels seem to name the same images in two ways; warn of other ids without a match.

    ``unlabelled`` are ids of detections without labels, ``undetected`` are ids of labels without detections, and
    ``labelled`` is the number of all labelled images. Either list alone is usual: only some images are labelled, some
    have no boxes. Both together are an error where two ids differ only in how they are written, or where each list has
    more than one id and more than a quarter of the labelled images.
    """
    if not unlabelled or not undetected:
        return
    if len(undetected) == labelled:
        raise InputError(
            f"detections must be of labelled images, but none of their {len(unlabelled)} images is among the "
            f"{labelled} labelled ones; compare the image ids of the two files: {shown(unlabelled)} and "
            f"{shown(undetected)}"
        )
    by_meaning = {_meaning(image_id): image_id for image_id in unlabelled}
    likely = [(label, by_meaning[_meaning(label)]) for label in undetected if _meaning(label) in by_meaning]
    if alike := [(label, image_id) for label, image_id in likely if may_be_one_photo(label, image_id)]:
        are = f"{len(alike)} of {labelled} labelled images {'is' if len(alike) == 1 else 'are'}"
        named = ", ".join(f"{label!r} is {image_id!r}" for label, image_id in alike[:NAMED_IDS])
        raise InputError(
            f"image ids must be written alike in detections and labels, but {are} written differently: "
            f"{named} among the detections"
        )
    unmatched = (
        f"{len(undetected)} of {labelled} labelled images are not among the detections ({shown(undetected)}), and "
        f"{len(unlabelled)} images of the detections are not among the labels ({shown(unlabelled)})"
    )
    if min(len(unlabelled), len(undetected)) > max(1, MANY_UNMATCHED * labelled):
        raise InputError(f"image ids of detections and labels must match, but {unmatched}; compare the two files")
    warnings.warn(f"{unmatched}; {consequence}", stacklevel=2)


def may_be_one_photo(first: ImageId, second: ImageId) -> bool:
    r"""Return whether two paths of one file name can be of one photo: as far as both name folders, these are the same.

    >>> may_be_one_photo("kitchen/1.jpg", "bath/1.jpg"), may_be_one_photo(r"C:\Kitchen\1.jpg", "kitchen/1.jpg")
    (False, True)
    """
    return all(one == other for one, other in zip(_folders(first), _folders(second), strict=False))


def _folders(image_id: ImageId) -> list[str]:
    """Return the folders of a path from the innermost to the outermost, in lower case."""
    parts = str(image_id).strip().casefold().replace("\\", "/").split("/")
    return [part for part in reversed(parts[:-1]) if part not in ("", ".", "..")]


def _meaning(image_id: ImageId) -> float | str:
    """Return what ids are compared by: the value of a number, else the file name without suffix and in lower case."""
    text = str(image_id).strip().casefold()
    stem = PurePosixPath(text.replace("\\", "/")).stem
    for candidate in (text, stem):
        if PLAIN_NUMBER.fullmatch(candidate):
            return float(candidate)
    return stem


def shown(ids: Sequence[ImageId]) -> str:
    """Return the first few ids or names, as a message shows them."""
    return ", ".join(map(repr, ids[:NAMED_IDS])) + (" …" if len(ids) > NAMED_IDS else "")
