"""`tallybox vqa prepare`: from the official files and files of features to the folder that training reads."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tallybox.errors import InputError
from tallybox.vqa.data.official import SplitFiles, read_pairs, read_records
from tallybox.vqa.data.questions import JOINED_SPLITS
from tallybox.vqa.data.splits import open_questions, write_split
from tallybox.vqa.data.store import PHOTOS, FeatureStore, read_features, read_tsv, write_features
from tallybox.vqa.data.vocabulary import VOCABULARY, Vocabulary

PATTERNS = ("*.tsv*", "*.safetensors")  # the public files end in .tsv, .tsv.0, .tsv.1

OnProgress = Callable[[str, int, int], None]  # the step, how much of it is done, of how much


def prepare(
    splits: Mapping[str, SplitFiles],
    features: Sequence[Path],
    out: Path,
    *,
    vocabulary_from: str = "train",
    skip_missing: bool = False,
    on_progress: OnProgress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write vocabulary, features and questions to ``out``, and return their numbers, ready for JSON.

    ``features`` are files or folders of them. Each becomes a file of the store, unless it is there already: the same
    call goes on after an interruption, and a call with more files adds their photos. Words and answers are those of the
    split ``vocabulary_from``, train or trainval. A question without a photo is an error, or is left out with
    ``skip_missing``. A test split without any photo in the store is left out.
    """
    sources = JOINED_SPLITS.get(vocabulary_from, (vocabulary_from,))
    if missing := [split for split in sources if split not in splits]:
        raise InputError(f"The vocabulary is made from {vocabulary_from}, but there are no questions of {missing[0]}.")
    records = {}
    for number, (split, files) in enumerate(splits.items(), start=1):
        records[split] = read_records(files.questions, files.annotations)
        on_progress("reading questions", number, len(splits))
    vocabulary = Vocabulary.of(chain.from_iterable(records[split] for split in sources), split=vocabulary_from)
    vocabulary.save(out / VOCABULARY)
    prepare_store(features, out / PHOTOS, on_progress)
    store = FeatureStore.open(out / PHOTOS)
    counts: dict[str, dict[str, int]] = {"questions": {}, "left_out": {}, "lost_questions": {}, "unanswerable": {}}
    for split, files in splits.items():
        known = [record for record in records[split] if record.image_id in store.row_of]
        absent = [record.image_id for record in records[split] if record.image_id not in store.row_of]
        if split.startswith("test") and not known:
            counts["left_out"][split] = len(absent)
            continue
        if absent and not (skip_missing and known):
            raise InputError(
                f"{files.questions}: {len(absent)} questions are about {len(set(absent))} photos that no "
                f"file of features has, among them {absent[0]}; add files with --features, or pass --skip-missing"
            )
        pairs = np.empty((0, 2), np.int64) if files.pairs is None else read_pairs(files.pairs)
        both_known = np.isin(pairs, [record.question_id for record in known]).all(1)
        write_split(out, split, known, pairs[both_known], vocabulary)
        on_progress(f"{split} questions", len(known), len(known))
        answers = open_questions(out, split, store).answers
        counts["questions"][split], counts["lost_questions"][split] = len(known), len(absent)
        counts["unanswerable"][split] = 0 if answers is None else int((answers < 0).all(1).sum())
    return {
        **counts,
        "photos": len(store.row_of),
        "proposals": int(store.offsets[-1]),
        "features": store.width,  # of a proposal
        "repeated_photos": len(store.image_ids) - len(store.row_of),  # the first is used
        "words": len(vocabulary.words),
        "answers": len(vocabulary.answers),
        "store_bytes": sum(path.stat().st_size for path in (out / PHOTOS).iterdir()),
    }


def find_feature_files(path: Path) -> list[Path]:
    """Return the files of features at a path, which is such a file or a folder of them, by name."""
    if path.is_file():
        return [path]
    found = [file for pattern in PATTERNS for file in path.rglob(pattern) if not file.name.startswith(".")]
    if not found:
        raise InputError(f"{path} is no file and has no files of features ({', '.join(PATTERNS)})")
    return sorted(found)


def prepare_store(features: Sequence[Path], folder: Path, on_progress: OnProgress) -> None:
    """Write each file of features to a store, unless it is there and newer than the file."""
    files = [file for path in features for file in find_feature_files(path)]
    sizes = [file.stat().st_size for file in files]
    for number, file in enumerate(files):
        on_bytes = partial(lambda before, done: on_progress("photos", before + done, sum(sizes)), sum(sizes[:number]))
        part = folder / f"{file.resolve().parent.name}-{file.name}.safetensors"
        if not part.exists() or part.stat().st_mtime_ns < file.stat().st_mtime_ns:
            is_plain = file.suffix.lower() == ".safetensors"
            write_features(part, read_features(file) if is_plain else read_tsv(file, on_bytes))
        on_bytes(sizes[number])
