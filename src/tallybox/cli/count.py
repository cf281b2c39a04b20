"""`tallybox count`: count the objects in photos and in files of detections, image by image."""

import collections
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, groupby
from pathlib import Path

import click

from tallybox import __version__
from tallybox.cli.count_output import (
    Write,
    json_output,
    picture_output,
    report_output,
    table_output,
    text_output,
)
from tallybox.cli.options import (
    detections_options,
    detector_options,
    estimator_option,
    file_to_write,
    json_option,
    reported_failures,
)
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.detections.detections import BoxFormat
from tallybox.detections.readers import read_category_names, read_detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.files import check_writable, is_special
from tallybox.photos.cache import file_state
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.journal import resumed
from tallybox.photos.pipeline import PhotoResult
from tallybox.photos.shipped import shipped_estimator
from tallybox.photos.sources import find_sources
from tallybox.photos.specs import DEFAULT_SPEC
from tallybox.photos.tiles import check_tiles
from tallybox.photos.video import expected_frames, is_video, parse_interval, read_frames

TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet", ".json")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Count these only; may be repeated.")
@estimator_option
@detector_options
@detections_options
@click.option(
    "--tiles", default="auto", metavar="auto|off|N", help="Windows for large photos; N: their smallest side in pixels."
)
@click.option("--every", metavar="TIME", help="Of a video, count a frame every 1s (the default), 500ms, 2min …")
@click.option("--save", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write annotated photos here.")
@click.option(
    *("--out", "--csv", "table"),
    type=file_to_write,
    help='Write a table (.csv, .tsv, .xlsx, .parquet) or .json, and resume it after an interruption; "-" prints CSV.',
)
@click.option("--report", "page", type=file_to_write, help="Write a page (.html) with totals and outlined photos.")
@click.option("--wide", is_flag=True, help="In the table, one row for each image and one column for each category.")
@click.option("--total", "with_totals", is_flag=True, help="Also add up all images, with an interval.")
@json_option
def count(
    paths: tuple[str, ...],
    categories: tuple[str, ...],
    file: Path | None,
    detector: str | None,
    texts: tuple[str, ...],
    engine: str | None,
    box_format: BoxFormat | None,
    names: Path | None,
    tiles: str,
    every: str | None,
    folder: Path | None,
    table: Path | None,
    page: Path | None,
    wide: bool,
    with_totals: bool,
    as_json: bool,
) -> None:
    """Count the objects in photos, folders of photos, patterns ("*.jpg"), videos and files of detections.

    tallybox lists every category with a probability above 10 %; those below 50 % count as 0. With --category it counts
    exactly the categories you name. To add up images, use --total: a sum of counts is too low.

    \b
    tallybox count holiday.jpg
    tallybox count photos/ --out counts.xlsx --report report.html
    tallybox count clip.mp4 --every 1s --out counts.csv
    tallybox count detections.parquet --estimator own.safetensors --json
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    if as_json and table == Path("-"):
        raise click.UsageError("--json and --out - both print on standard output; name a file for --out")
    if wide and table is None:
        raise click.UsageError("--wide is for a table; name its file with --out")
    is_file = table is not None and table != Path("-") and not is_special(table)
    if table is not None and is_file and table.suffix.lower() not in TABLE_SUFFIXES:
        raise click.UsageError(f"--out takes a file that ends in {', '.join(TABLE_SUFFIXES)}; got {table}")
    skipped = collections.Counter[str]()
    try:
        sources = find_sources(paths, skipped)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    videos = [source.path for source in sources if source.is_photo and is_video(source.path)]
    if every and not videos:
        raise click.UsageError("--every is for videos, but there is none among the paths")
    if videos and (with_totals or engine == "ray"):
        raise click.UsageError("--total and --engine ray are for photos, not for videos")
    seconds = parse_interval(every or "1s")
    frames = sum(expected_frames(path, seconds) - 1 for path in videos)
    if videos:
        echo_line("Counts are of the objects visible in a frame; use a tracker to count how many pass.", err=True)
    inputs = [*(source.path for source in sources), *(path for path in (file, names) if path is not None)]
    if table not in (None, Path("-")):
        check_writable(table, inputs)
    if kinds := ", ".join(f"{number} {kind}" for kind, number in skipped.most_common() if number):
        echo_line(f"Skipped files that are not photos: {kinds}", err=True)
    if page is not None:
        check_writable(page, inputs)
        if page.suffix.lower() not in (".html", ".htm") and not is_special(page):
            raise click.UsageError(f"--report takes a file that ends in .html; got {page}")
        if not any(source.is_photo for source in sources):
            raise click.UsageError("--report shows photos, but there are none among the paths")
    first_file = next((source.path for source in sources if not source.is_photo), None)
    has_photos = any(source.is_photo for source in sources)
    if folder is not None and not has_photos:
        raise click.UsageError("--save draws on photos, but there is none among the paths")
    if (detector or texts) and not has_photos:
        raise click.UsageError("--detector and --text are for photos, but there is none among the paths")
    if engine == "ray" and first_file is not None:
        raise click.UsageError("--engine ray is for photos")
    if with_totals and (engine == "ray" or (has_photos and first_file is not None)):
        raise click.UsageError("--total adds up photos or files of detections, not both, and not with --engine ray")
    with reported_failures() as report, ExitStack() as stack:
        estimator = None if file is None else CountEstimator.load(file)
        counter = _photo_counter(detector or DEFAULT_SPEC, estimator, texts, tiles) if has_photos else None
        file_estimator = _file_estimator(first_file, estimator) if first_file is not None else None
        chosen = categories or None
        outputs: list[Write] = []
        compute_totals = None
        if with_totals and (total_estimator := file_estimator if counter is None else counter.estimator):
            totals = total_estimator.totals(chosen)
            outputs.append(lambda image: totals.add(image.predictions) if image.predictions is not None else None)
            compute_totals = totals.compute
        if page is not None and counter is not None:
            outputs.append(stack.enter_context(report_output(page, counter, chosen)))
        if as_json:
            outputs.append(stack.enter_context(json_output(compute_totals)))
        if table is not None:
            outputs.append(stack.enter_context(table_output(table, compute_totals, wide=wide)))
        if folder is not None and counter is not None:
            outputs.append(stack.enter_context(picture_output(folder, counter, report)))
        if not as_json and table is None:
            text = text_output(compute_totals, every=bool(categories), as_lines=len(sources) + frames > 1)
            outputs.append(stack.enter_context(text))
        show_progress = stack.enter_context(progress_bar("counting"))

        def write(image: PhotoResult) -> None:
            for output in outputs:
                output(image)

        # A report draws the boxes of every photo, which a journal does not keep.
        resumes = is_file and page is None and first_file is None and not videos
        journal = table if resumes else None
        used = {"detector": [detector, *texts], "categories": categories, "tiles": tiles, "version": __version__}
        settings = {**used, "estimator": None if file is None else file_state(file)}
        class_names = None if names is None else read_category_names(names)
        done = 0
        for is_photo, group in groupby(sources, key=lambda source: source.is_photo):
            group_paths = [source.path for source in group]
            if is_photo and counter is not None:
                keep_photos = folder is not None
                count_photos = partial(
                    _count_photos, counter, categories=chosen, engine=engine, every=seconds, keep_photos=keep_photos
                )
                known = counter.estimator.fitted.categories
                for photo in (
                    count_photos(group_paths)
                    if journal is None
                    else resumed(journal, group_paths, count_photos, settings, known)
                ):
                    if photo.error is not None:
                        report(photo.error)
                    elif photo.detections is not None:
                        write(photo)
                    done += 1
                    show_progress(done, max(done, len(sources) + frames))
            elif file_estimator is not None:
                for path in group_paths:
                    try:
                        images = read_detections(path, box_format=box_format, category_names=class_names)
                        for image, predictions in file_estimator.predict_each(images, chosen):
                            write(PhotoResult(None, image, predictions=predictions))
                    except InputError as error:
                        report(error)
                    done += 1
                    show_progress(done, len(sources))


def _photo_counter(spec: str, estimator: CountEstimator | None, texts: Sequence[str], tiles: str) -> PhotoCounter:
    counter = PhotoCounter(spec, estimator, tiles=check_tiles(int(tiles) if tiles.isdecimal() else tiles), texts=texts)
    if not counter.estimator.is_calibrated:
        echo_line(
            f"Uncalibrated: no estimator was fitted to {spec}, so its scores are used as they are. To calibrate the "
            f"counts, label some photos, run 'tallybox fit PHOTOS LABELS.csv --detector {spec} --out FILE' and pass "
            "--estimator FILE.",
            err=True,
        )
    return counter


def _file_estimator(path: Path, estimator: CountEstimator | None) -> CountEstimator:
    """Return the user's estimator, or the shipped one with a warning, because files do not name their detector."""
    if estimator is not None:
        return estimator
    echo_line(
        f"{path}: using the bundled estimator, which was fitted to PicoDet-S at 640 px. For another detector, run "
        "'tallybox fit DETECTIONS LABELS --out FILE' and pass --estimator FILE.",
        err=True,
    )
    return shipped_estimator()


def _count_photos(
    counter: PhotoCounter,
    paths: list[Path],
    *,
    categories: Categories,
    engine: str | None,
    every: float,
    keep_photos: bool,
) -> Iterator[PhotoResult]:
    if engine == "ray":
        from tallybox.photos.distributed import count_each_with_ray

        return count_each_with_ray(counter, paths, categories)
    frames = (read_frames(path, every) if is_video(path) else [path] for path in paths)
    return counter.count_each(chain.from_iterable(frames), categories, keep_photos=keep_photos)
