"""Labelled images: detections of a file, or of photos, with their true counts. `fit` and `evaluate` read them so."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tallybox.detections.categories import ClassNames
from tallybox.detections.detections import BoxFormat, Detections
from tallybox.detections.labels import TrueCounts, match_images
from tallybox.detections.readers import read_counts, read_detections
from tallybox.errors import InputError
from tallybox.photos.cache import cached_detections
from tallybox.photos.detector import DEFAULT_SPEC, categories_of, detector_of
from tallybox.photos.pipeline import OnFailure, OnProgress
from tallybox.photos.sources import find_photos, find_sources


class LabelledImages(NamedTuple):
    """Images with their true counts, under the same category ids."""

    images: list[Detections]
    counts: TrueCounts
    detector: tuple[str, ...]  # SPEC and phrases of the detector that looked at photos; empty for a file of detections


def read_labelled_images(
    source: str | Path,
    labels: str | Path,
    *,
    cache: str | Path | None = None,
    detector: str | None = None,
    texts: Sequence[str] = (),
    box_format: BoxFormat | None = None,
    category_names: ClassNames = None,
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
) -> LabelledImages:
    r"""Read labelled images for `CountEstimator.fit` and `evaluate`: photos or a file of detections, and labels.

    ``source`` is a file of detections, or a folder or pattern of photos, in which a ``detector`` looks. Detections of
    photos are kept in the folder ``cache``, by default beside the labels: an interrupted run goes on where it was, and
    later ones detect only new photos. Labels are checked first. Categories are matched by name. Boxes of categories
    that the labels do not name are kept, because the estimator sees them too.

    ``box_format`` and ``category_names`` are as in `read_detections`. ``on_failure`` gets the error of a photo that
    cannot be read.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "found.csv").write_text("image_id,name,x1,y1,x2,y2,conf\n7,nut,0,0,9,9,0.5\n")
    >>> _ = (folder / "counts.csv").write_text("image_id,bolt,nut\n7,0,3\n")
    >>> images, counts, _ = read_labelled_images(folder / "found.csv", folder / "counts.csv")
    >>> images[0].category_names, counts.count(7, "nut")
    ({0: 'nut'}, 3)
    """
    stored = read_counts(labels)
    used: tuple[str, ...] = ()
    if detector is None and not find_sources([str(source)])[0].is_photo:
        if texts:
            raise InputError(f"texts are for photos, but {source} is a file of detections")
        found = read_detections(source, box_format=box_format, category_names=category_names)
        own_names = dict[int, str]()
        images = list(match_images(found, own_names))
        counts = stored.for_detections(own_names)
    else:
        photos, used = find_photos([str(source)]), (detector or DEFAULT_SPEC, *texts)
        looking = detector_of(used[0], texts=texts)
        counts = stored.for_detections(categories_of(looking))
        with warnings.catch_warnings(action="ignore"):  # they come with the counts
            counts.of_photos(list(photos))  # raise before minutes of detecting if the labels are wrong
        folder = Path(labels).with_suffix(".detections") if cache is None else Path(cache)
        images = cached_detections(photos, folder, looking, used, on_failure=on_failure, on_progress=on_progress)
        counts = counts.of_photos([str(image.image_id) for image in images])
    return LabelledImages(images, counts, used)
