"""`tallybox vqa prepare`: from the official files to a prepared folder, in steps that can be resumed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.runs import RunFolder
from tallybox.vqa.data.features import FilePosition, read_tsv
from tallybox.vqa.data.questions import QuestionRecord, check_pairs, read_pairs, read_records
from tallybox.vqa.data.relevance import TrueBoxes, relevance_of
from tallybox.vqa.data.splits import JOINED_SPLITS, SPLITS, EncodedQuestions, has_split, open_questions, write_split
from tallybox.vqa.data.store import FeatureStore, StoreWriter, complete_store
from tallybox.vqa.data.vocabulary import ANSWERS, Vocabulary

PHOTOS, VOCABULARY = "photos", "vocabulary.json"
# The official names, with or without the version: v2_OpenEnded_mscoco_train2014_questions.json, gzipped or not.
OFFICIAL_NAME = re.compile(
    r"(?:v\d_)?(?:OpenEnded_)?(?:mscoco|abstract_v\d+)_(?P<split>train|val|test-dev|test)\d{4}_"
    r"(?:complementary_(?=pairs))?(?P<role>questions|annotations|pairs)\.json(?:\.gz)?"
)
SAMPLE_BYTES = 1 << 20  # of each end of a file, to recognise it

OnProgress = Callable[[str, int, int], None]  # the step, how much of it is done, of how much


@dataclass(frozen=True)
class SplitFiles:
    """The official files of one split; a test split has questions only."""

    questions: Path
    annotations: Path | None = None
    pairs: Path | None = None


def official_files(folder: Path) -> dict[str, SplitFiles]:
    """Find the official files in a folder by their names."""
    if not folder.is_dir():
        raise InputError(f"{folder} must be a folder with the official files, but it is none; check the path")
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        if match := OFFICIAL_NAME.fullmatch(path.name):
            roles, role = found.setdefault(match["split"], {}), match["role"]
            if role in roles:
                raise InputError(
                    f"{folder} must have one file of {match['split']} {role}, "
                    f"but has {roles[role].name} and {path.name}"
                )
            roles[role] = path
    if not found:
        raise InputError(
            f"{folder} must have files like v2_OpenEnded_mscoco_train2014_questions.json (or .json.gz), but has none; "
            "name files of your own with --questions SPLIT=FILE"
        )
    return {split: _split_files(split, found[split]) for split in SPLITS if split in found}


def with_explicit_files(
    splits: Mapping[str, SplitFiles], given: Iterable[tuple[str, str, Path]]
) -> dict[str, SplitFiles]:
    """Return the files of each split, where ``given`` files (split, role, path) replace those of the same role."""
    roles = {split: _roles(files) for split, files in splits.items()}
    for split, role, path in given:
        if split not in SPLITS:
            raise InputError(f"split must be one of {', '.join(SPLITS)}, but got {split!r}")
        roles.setdefault(split, {})[role] = path
    return {split: _split_files(split, roles[split]) for split in SPLITS if split in roles}


def _split_files(split: str, roles: Mapping[str, Path]) -> SplitFiles:
    if "questions" not in roles:
        raise InputError(f"split {split} must have a file of questions, but has only {', '.join(roles)}")
    if not split.startswith("test") and "annotations" not in roles:
        raise InputError(f"split {split} must have a file of annotations beside {roles['questions']}, but has none")
    return SplitFiles(**roles)


def _roles(files: SplitFiles) -> dict[str, Path]:
    return {role: path for role, path in asdict(files).items() if path is not None}


def prepare(
    splits: Mapping[str, SplitFiles],
    features: Sequence[Path],
    out: Path,
    *,
    instances: Sequence[Path] = (),
    vocabulary: Vocabulary | None = None,
    vocabulary_from: str = "train",
    answers: int = ANSWERS,
    on_progress: OnProgress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write vocabulary, feature store and questions to ``out``, and return their numbers, ready for JSON.

    The same call resumes after an interruption. Words and answers are those of the split ``vocabulary_from``, train or
    trainval, unless a vocabulary is given. Photos are stored in the order of the files; of several with one id, the
    first is kept. With the true boxes of COCO ``instances`` files, the questions are written with the proposals that
    show what they name.
    """
    if not features:
        raise InputError("features must be at least one TSV file, but there is none")
    sources = JOINED_SPLITS.get(vocabulary_from, (vocabulary_from,))
    missing = [split for split in sources if split not in splits]
    if vocabulary is None and missing:
        raise InputError(
            f"splits must include {missing[0]} to make a vocabulary from, but got "
            f"{', '.join(splits) or 'none'}; or give the vocabulary of an earlier folder"
        )
    described = _config(splits, features, instances, vocabulary, answers)
    RunFolder(out, described if sources == ("train",) else described | {"vocabulary_from": vocabulary_from})
    records, pairs = _read_splits(splits, on_progress)
    known = vocabulary or Vocabulary.of(chain.from_iterable(records[split] for split in sources), answers)
    known.save(out / VOCABULARY)
    store = _prepare_photos(features, out / PHOTOS, on_progress)
    true_boxes = TrueBoxes.read(instances) if instances else None
    for split, files in splits.items():
        _check_photos(files.questions, records[split], store)
        if not has_split(out, split):
            relevance = None
            if true_boxes is not None:
                report = partial(on_progress, f"{split} true boxes")
                relevance = relevance_of(records[split], store, true_boxes, report)
            report = partial(on_progress, f"{split} questions")
            write_split(out, split, records[split], pairs[split], known, store, report, relevance=relevance)
    return {
        "questions": {split: len(some) for split, some in records.items()},
        # No answer is in the vocabulary: not trained on.
        "unanswerable": {split: sum(_unanswerable(record, known) for record in records[split]) for split in splits},
        # The relevant proposals are known.
        "supervised": {split: _supervised(open_questions(out, split)) for split in splits},
        "photos": len(store),
        "proposals": int(store.offsets[-1]),
        "repeated_photos": store.header["repeated"],  # with the id of an earlier one, which was kept
        "words": len(known.words),
        "answers": len(known.answers),
        "store_bytes": sum(path.stat().st_size for path in (out / PHOTOS).iterdir()),
    }


def _read_splits(
    splits: Mapping[str, SplitFiles], on_progress: OnProgress
) -> tuple[dict[str, list[QuestionRecord]], dict[str, NDArray[np.int64]]]:
    records: dict[str, list[QuestionRecord]] = {}
    pairs: dict[str, NDArray[np.int64]] = {}
    for number, (split, files) in enumerate(splits.items()):
        on_progress("reading questions", number, len(splits))
        records[split] = read_records(files.questions, files.annotations)
        if not records[split]:
            raise InputError(f"{files.questions} must hold at least one question, but there is none")
        pairs[split] = np.empty((0, 2), np.int64)
        if files.pairs is not None:
            pairs[split] = read_pairs(files.pairs)
            check_pairs(files.pairs, pairs[split], records[split])
    on_progress("reading questions", len(splits), len(splits))
    return records, pairs


def _prepare_photos(features: Sequence[Path], folder: Path, on_progress: OnProgress) -> FeatureStore:
    if complete_store(folder):
        return FeatureStore.open(folder)
    sizes = [path.stat().st_size for path in features]
    writer = StoreWriter(folder)
    source, position = writer.source, writer.position
    for source in range(writer.source, len(features)):
        position = writer.position if source == writer.source else FilePosition()
        for photo, after in read_tsv(features[source], position):
            writer.add(photo, source, after, f"{features[source]}, record {after.record - 1}")
            position = after
            on_progress("photos", sum(sizes[:source]) + after.bytes_read, sum(sizes))
    writer.finish(source, position)
    return FeatureStore.open(folder)


def _check_photos(questions: Path, records: Sequence[QuestionRecord], store: FeatureStore) -> None:
    known = set(store.image_ids.tolist())
    missing = [number for number, record in enumerate(records) if record.image_id not in known]
    if missing:
        first = records[missing[0]]
        photos = len({records[number].image_id for number in missing})
        raise InputError(
            f"{questions}, record {missing[0]}: photo {first.image_id} must be in the files of features, but is not, "
            f"nor are those of {len(missing)} questions about {photos} photos in all; name all TSV files, "
            "into a new folder"
        )


def _unanswerable(record: QuestionRecord, vocabulary: Vocabulary) -> bool:
    return record.answers is not None and max(vocabulary.encode_answers(record.answers)) < 0


def _supervised(questions: EncodedQuestions) -> int:
    return 0 if questions.relevance is None else int((questions.relevance >= 0).any(1).sum())


def _config(
    splits: Mapping[str, SplitFiles],
    features: Sequence[Path],
    instances: Sequence[Path],
    vocabulary: Vocabulary | None,
    answers: int,
) -> dict[str, Any]:
    """Describe the input by name, size and a sample of each file's content, so that a changed one is noticed."""
    described: dict[str, Any] = {"features": [_described(path) for path in features]}
    if instances:
        described["instances"] = [_described(path) for path in instances]
    for split, files in splits.items():
        described |= {f"{split} {role}": _described(path) for role, path in _roles(files).items()}
    if vocabulary is None:
        return described | {"answers": answers}
    content = "\n".join((*vocabulary.words, "", *vocabulary.answers))
    return described | {"vocabulary": hashlib.sha256(content.encode()).hexdigest()[:16]}


def _described(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            sample = file.read(SAMPLE_BYTES)
            file.seek(max(0, size - SAMPLE_BYTES))
            sample += file.read()
    except FileNotFoundError:
        raise InputError(f"{path} must be a file, but there is none; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path} must be a file, but it is a folder") from None
    return {"name": path.name, "bytes": size, "sample": hashlib.sha256(sample).hexdigest()[:16]}
