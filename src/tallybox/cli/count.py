"""`tallybox count`: count the objects in photos and in files of detections, image by image."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tallybox.cli.count_output import CountedImage, CsvOutput, JsonOutput, Output, PictureOutput, TextOutput
from tallybox.cli.detector_options import detector_options
from tallybox.cli.progress import progress_bar
from tallybox.detections.category_names import check_same_names
from tallybox.detections.readers import read_detections, stored_category_names
from tallybox.errors import InputError
from tallybox.photos.sources import Source, find_sources

if TYPE_CHECKING:
    from tallybox.detections.container import Detections
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.estimator.prediction import ImagePredictions
    from tallybox.photos.counter import PhotoCounter

OnFailure = Callable[[InputError], None]


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Count these only; may be repeated.")
@click.option("--estimator", "file", type=click.Path(path_type=Path), help="What `tallybox fit` wrote.")
@detector_options
@click.option("--save", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write annotated photos here.")
@click.option("--csv", "table", type=click.Path(path_type=Path, dir_okay=False), help='Write a CSV; "-" prints it.')
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def count(
    paths: tuple[str, ...],
    categories: tuple[str, ...],
    file: Path | None,
    detector: str | None,
    texts: tuple[str, ...],
    engine: str | None,
    folder: Path | None,
    table: Path | None,
    as_json: bool,
) -> None:
    """Count the objects in photos, folders of photos, patterns ("*.jpg") and files of detections.

    Detections are .json, .json.gz, .csv, .csv.gz or .parquet, as `tallybox fit` takes them. Without --category, every
    category is listed that is there with a probability of more than 0.1; the others count 0. A file that cannot be
    read is reported and the others are counted; the exit status is then 1. With --engine ray, photos and Parquet data
    sets are counted on the cluster that RAY_ADDRESS names, else on all cores here.
    """
    if as_json and table == Path("-"):
        raise click.UsageError("--json and --csv - both print on standard output; name a file for --csv")
    try:
        sources = find_sources(paths)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    if folder is not None and not any(source.is_photo for source in sources):
        raise click.UsageError("--save draws on photos, but there is none among the paths")
    if (detector or texts) and not any(source.is_photo for source in sources):
        raise click.UsageError("--detector and --text are for photos, but there is none among the paths")
    failures: list[InputError] = []

    def report(error: InputError) -> None:
        failures.append(error)
        click.echo(f"Error: {error}", err=True)

    counting = _Counting(sources, file, detector, texts, categories, engine, report)
    with ExitStack() as stack:
        outputs: list[Output] = []
        if as_json:
            outputs.append(stack.enter_context(JsonOutput()))
        if table is not None:
            outputs.append(stack.enter_context(CsvOutput(table)))
        if folder is not None:
            outputs.append(stack.enter_context(PictureOutput(folder, counting.photo_counter().estimator, report)))
        if not as_json and table != Path("-"):
            outputs.append(stack.enter_context(TextOutput(every=bool(categories))))
        for counted in counting.each():
            for output in outputs:
                output.write(counted)
    if failures:
        sys.exit(1)


class _Counting:
    """The images of one command, counted in the order given."""

    def __init__(
        self,
        sources: list[Source],
        file: Path | None,
        detector: str | None,
        texts: Sequence[str],
        categories: Sequence[str],
        engine: str | None,
        report: OnFailure,
    ) -> None:
        from tallybox.estimator.estimator import CountEstimator

        self.sources, self.engine, self.report = sources, engine, report
        self.detector, self.texts = detector, texts
        self.categories = list(categories) or None
        self.estimator = None if file is None else CountEstimator.load(file)
        self._file_estimator: CountEstimator | None = self.estimator
        self._photo_counter: PhotoCounter | None = None
        warnings.filterwarnings("ignore", module=r"PIL\.")  # about damage in a file: it is read or reported

    def each(self) -> Iterator[CountedImage]:
        """Yield photos as batches of them are counted, and images of files as these are read."""
        done = 0
        with progress_bar("counting") as show:
            for is_photo, group in groupby(self.sources, key=lambda source: source.is_photo):
                paths = [source.path for source in group]
                counted = self._count_photos(paths) if is_photo else self._count_files(paths)
                for image in counted:
                    if image is not None:
                        yield image
                    else:  # a photo or a file is done
                        done += 1
                        show(done, len(self.sources))

    def photo_counter(self) -> PhotoCounter:
        """Return what counts photos, made on first use: detectors take a while to load."""
        if self._photo_counter is None:
            from tallybox.photos.counter import PhotoCounter
            from tallybox.photos.specs import DEFAULT_SPEC

            spec = self.detector or DEFAULT_SPEC
            self._photo_counter = PhotoCounter(spec, self.estimator, texts=self.texts)
            if not self._photo_counter.estimator.is_calibrated:
                click.echo(
                    f"Uncalibrated: no estimator was given for {spec}, so that counts come from its scores as they "
                    "are. To calibrate them, label some photos, run 'tallybox detect' and 'tallybox fit', and count "
                    "with --estimator FILE.",
                    err=True,
                )
        return self._photo_counter

    def _count_photos(self, paths: list[Path]) -> Iterator[CountedImage | None]:
        counter = self.photo_counter()
        if self.engine == "ray":
            from tallybox.photos.ray_engine import count_each_with_ray

            counted_photos = count_each_with_ray(counter, paths, self.categories)
        else:
            counted_photos = counter.count_each(paths, self.categories)
        for counted in counted_photos:
            if counted.predictions is None:
                if counted.error is not None:
                    self.report(counted.error)
            else:
                yield CountedImage(str(counted.path), counted.predictions, counted.path, counted.detections)
            yield None

    def _count_files(self, paths: list[Path]) -> Iterator[CountedImage | None]:
        for path in paths:
            try:
                for image, predictions in self._predict_file(path):
                    yield CountedImage(image.image_id, predictions)
            except InputError as error:
                self.report(error)
            yield None

    def _predict_file(self, path: Path) -> Iterator[tuple[Detections, ImagePredictions]]:
        estimator = self._estimator_of_files(path)
        check_same_names(estimator.fitted.categories, stored_category_names(path), str(path))
        if self.engine == "ray":
            from tallybox.estimator.ray_engine import predict_each_with_ray

            return predict_each_with_ray(estimator, path, self.categories)
        return estimator.predict_each(read_detections(path), self.categories)

    def _estimator_of_files(self, path: Path) -> CountEstimator:
        """Return the estimator given, or the shipped one with a warning: files do not name their detector."""
        if self._file_estimator is None:
            from tallybox.photos.shipped import shipped_estimator

            self._file_estimator = shipped_estimator()
            click.echo(
                f"{path}: counting with the estimator that ships with tallybox, which is right only for boxes of "
                "PicoDet-S at 640 px; for another detector, learn one with 'tallybox fit DETECTIONS LABELS --out FILE' "
                "and give it with --estimator FILE.",
                err=True,
            )
        return self._file_estimator
