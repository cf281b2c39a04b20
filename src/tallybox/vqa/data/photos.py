"""From files of features to the feature store: list the photos, then store their proposals; both can be resumed."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.runs import append_results, read_results
from tallybox.vqa.data.feature_files import FeatureFile
from tallybox.vqa.data.features import FilePosition
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.store import (
    FeatureStore,
    StoreWriter,
    complete_store,
    drop_begun_source,
    stored_sources,
    unfinished_store,
)

INPUTS = "feature_files.jsonl"  # the files of a store in their order, with the ids of their photos

OnProgress = Callable[[str, int, int], None]  # the step, how much of it is done, of how much


def list_inputs(
    files: Sequence[FeatureFile], folder: Path, store: Path, on_progress: OnProgress, *, skip_broken: bool = False
) -> list[dict[str, Any]]:
    """Return the description and the photo ids of the files that a store was begun with, then of the ``files``.

    A file is read for its ids once. A file of the store that has changed since is an error, unless it was not read to
    its end: then it is read anew. With ``skip_broken`` a file that cannot be opened has no photos. ``found`` says what
    is wrong with a file.
    """
    earlier = read_results(folder / INPUTS)
    cached = {_key(entry["file"]): entry for entry in earlier}
    whole, begun = stored_sources(store)
    inputs = earlier[:begun]
    for number, file in enumerate(files):
        on_progress("photos' ids", number, len(files))
        described = file.described()
        key, name = _key(described), (described["name"], described.get("prefix"))
        if any(key == _key(entry["file"]) for entry in inputs):
            continue
        names = [(entry["file"]["name"], entry["file"].get("prefix")) for entry in inputs]
        if name in names[whole:begun]:
            drop_begun_source(store)
            return list_inputs(files, folder, store, on_progress, skip_broken=skip_broken)
        if name in names:
            raise InputError(
                f"{file.path} must be as it was when {folder} was begun, but its content differs; name a new folder"
            )
        if key not in cached:
            cached[key] = {"file": described, **_listed(file, skip_broken)}
            append_results(folder / INPUTS, [cached[key]])
        inputs.append(cached[key])
    if inputs != read_results(folder / INPUTS):  # without files that were named before and are not needed
        write_text(folder / INPUTS, "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in inputs))
    on_progress("photos' ids", len(files), len(files))
    return inputs


def _listed(file: FeatureFile, skip_broken: bool) -> dict[str, Any]:
    found: list[InputError] = []
    image_ids: list[str] = []
    try:
        image_ids = file.image_ids(found.append)
    except InputError as error:
        if not skip_broken:
            raise
        found.append(error)
    return {"image_ids": image_ids} | ({"found": [str(error) for error in found]} if found else {})


def check_photos(
    questions: Path,
    records: Sequence[QuestionRecord],
    inputs: Sequence[Mapping[str, Any]],
    *,
    split: str,
    skip_broken: bool = False,
) -> None:
    """Raise where a question's photo is in none of the files, or with ``skip_broken`` where that is so for all."""
    image_ids = listed_photos(inputs)
    if skip_broken and not image_ids:
        return  # reading the files says why
    missing = [number for number, record in enumerate(records) if record.image_id not in image_ids]
    if len(missing) > (len(records) - 1 if skip_broken else 0):
        first = records[missing[0]]
        photos = len({records[number].image_id for number in missing})
        remedy = "" if len(missing) == len(records) else ", or with --skip-broken to leave these questions out"
        found = [message for entry in inputs for message in entry.get("found", ())]
        raise InputError(
            f"{questions}, record {missing[0]}: photo {first.image_id} must be in the files of features, but is not, "
            f"nor are those of {len(missing)} questions of {split} about {photos} photos in all; repeat the command "
            + "; ".join([f"with more --features{remedy}", *found])
        )


def without_photos(records: Mapping[str, Sequence[QuestionRecord]], inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the test splits none of whose photos is in the files, unless there is no other split.

    The official folder has the test server's questions, whose photos are a download of their own.
    """
    image_ids = listed_photos(inputs)
    known = {split: any(record.image_id in image_ids for record in asked) for split, asked in records.items()}
    left_out = [split for split in records if split.startswith("test") and not known[split]]
    return left_out if len(left_out) < len(records) else []


def listed_photos(inputs: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the photos in the files that `list_inputs` describes."""
    return {image_id for entry in inputs for image_id in entry["image_ids"]}


def prepare_store(
    files: Sequence[FeatureFile],
    inputs: Sequence[Mapping[str, Any]],
    folder: Path,
    on_progress: OnProgress,
    *,
    skip_broken: bool = False,
) -> FeatureStore:
    """Write the photos of all files to a store, or add those of new files to it.

    ``inputs`` are the files in the order in which they were first named, which is that of the store. A record that
    cannot be read is an error, or with ``skip_broken`` it is skipped and listed in the store's header.
    """
    done = int(FeatureStore.open(folder).header["sources"]) if complete_store(folder) else 0
    if done == len(inputs):
        return FeatureStore.open(folder)
    by_key = {_key(file.described()): file for file in files}
    sizes = [int(entry["file"]["bytes"]) for entry in inputs]
    writer = StoreWriter(folder)

    def on_broken(error: InputError) -> None:
        if not skip_broken:
            raise InputError(f"{error}; with --skip-broken it is left out")
        writer.broken.append(str(error))

    for source in range(max(writer.source, done), len(inputs)):
        position = writer.position if source == writer.source else FilePosition()
        file = by_key.get(_key(inputs[source]["file"]))
        if file is None:
            raise InputError(
                f"{inputs[source]['file']['name']} was not read to its end; name it again with --features, "
                f"or delete {unfinished_store(folder)} to go on without it"
            )
        for photo, after in file.photos(position, on_broken):
            try:
                writer.add(photo, source, after, f"{file.path}, record {after.record - 1}")
            except InputError as error:
                on_broken(error)
            on_progress("photos", sum(sizes[:source]) + after.bytes_read, sum(sizes))
        writer.end_source(source)
    writer.finish()
    return FeatureStore.open(folder)


def _key(described: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a file, whatever folder it is in."""
    return described["bytes"], described["sample"], described.get("prefix")
