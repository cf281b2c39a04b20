"""`tallybox vqa prepare`: from the official files to a prepared folder, in steps that can be resumed."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.runs import open_run
from tallybox.vqa.data.benchmarks import is_tallyqa, read_howmany, read_tallyqa
from tallybox.vqa.data.feature_files import FeatureFile, describe_file, find_feature_files
from tallybox.vqa.data.photos import OnProgress, check_photos, list_inputs, prepare_store, without_photos
from tallybox.vqa.data.questions import QuestionRecord, check_pairs, read_pairs, read_records
from tallybox.vqa.data.relevance import TrueBoxes, relevance_of
from tallybox.vqa.data.splits import JOINED_SPLITS, SPLITS, is_written, open_questions, write_split
from tallybox.vqa.data.store import PHOTOS
from tallybox.vqa.data.vocabulary import ANSWERS, Vocabulary

VOCABULARY, SKIPPED = "vocabulary.json", "skipped.json"
FORMAT = 2  # of a prepared folder
# The official names, with or without the version: v2_OpenEnded_mscoco_train2014_questions.json, gzipped or not.
OFFICIAL_NAME = re.compile(
    r"(?:v\d_)?(?:OpenEnded_)?(?:mscoco|abstract_v\d+)_(?P<split>train|val|test-dev|test)\d{4}_"
    r"(?:complementary_(?=pairs))?(?P<role>questions|annotations|pairs)\.json(?:\.gz)?"
)


@dataclass(frozen=True)
class SplitFiles:
    """The official files of a split; a test split has questions only. TallyQA's questions include their answers."""

    questions: Path
    annotations: Path | None = None
    pairs: Path | None = None
    ids: Path | None = None  # HowMany-QA's list of questions, and Visual Genome's files for its training part
    genome: Path | None = None
    genome_photos: Path | None = None

    def read(self, split: str) -> list[QuestionRecord]:
        """Read the questions."""
        if self.ids is not None and self.annotations is not None:
            return read_howmany(split, self.questions, self.annotations, self.ids, self.genome, self.genome_photos)
        if self.annotations is None and is_tallyqa(self.questions):
            return read_tallyqa(self.questions)
        return read_records(self.questions, self.annotations)


def official_files(folder: Path) -> dict[str, SplitFiles]:
    """Find the official files of VQA v2, TallyQA or HowMany-QA in a folder by their names."""
    if not folder.is_dir():
        raise InputError(f"{folder} must be a folder with the official files, but it is none; check the path")
    vqa: dict[str, dict[str, Path]] = {}  # by split and role
    for path in sorted(folder.iterdir()):
        if match := OFFICIAL_NAME.fullmatch(path.name):
            roles, role = vqa.setdefault(match["split"], {}), match["role"]
            if role in roles:
                raise InputError(
                    f"{folder} must have one file of {match['split']} {role}, "
                    f"but has {roles[role].name} and {path.name}"
                )
            roles[role] = path
    if not vqa:
        tallyqa = {split: _beside(folder, f"{split}.json") for split in SPLITS}
        if any(tallyqa.values()):
            return with_explicit_files({}, ((split, "questions", path) for split, path in tallyqa.items() if path))
        raise InputError(
            f"{folder} must have files like v2_OpenEnded_mscoco_train2014_questions.json (or .json.gz), or TallyQA's "
            "train.json and test.json, but has none; name files of your own with --questions SPLIT=FILE"
        )
    if (ids := _beside(folder, "question_ids.json")) is not None:
        return _howmany_files(folder, ids, vqa)
    return with_explicit_files({}, ((split, *file) for split, roles in vqa.items() for file in roles.items()))


def with_explicit_files(
    splits: Mapping[str, SplitFiles], explicit: Iterable[tuple[str, str, Path]]
) -> dict[str, SplitFiles]:
    """Return the files of each split, where ``explicit`` files (split, role, path) replace those of the same role."""
    paths = {split: _roles(files) for split, files in splits.items()}  # by split and role
    for split, role, path in explicit:
        if split not in SPLITS:
            raise InputError(f"split must be one of {', '.join(SPLITS)}, but got {split!r}")
        paths.setdefault(split, {})[role] = path
    for split, roles in paths.items():
        if "questions" not in roles:
            raise InputError(f"split {split} must have a file of questions, but has only {', '.join(roles)}")
        questions = roles["questions"]
        has_answers = "annotations" in roles or (questions.is_file() and is_tallyqa(questions))
        if not split.startswith("test") and not has_answers:
            raise InputError(f"split {split} must have a file of annotations beside {questions}, but has none")
    return {split: SplitFiles(**paths[split]) for split in SPLITS if split in paths}


def _howmany_files(folder: Path, ids: Path, vqa: Mapping[str, Mapping[str, Path]]) -> dict[str, SplitFiles]:
    """Return HowMany-QA's files: its train is part of VQA's train, its dev and test are parts of VQA's val."""
    for split in ("train", "val"):
        if not {"questions", "annotations"} <= vqa.get(split, {}).keys():
            raise InputError(f"{folder} must have VQA v2's questions and annotations of {split} for {ids.name}")
    # Without pairs, which name questions that are not listed.
    train, val = (replace(SplitFiles(**vqa[split]), pairs=None, ids=ids) for split in ("train", "val"))
    genome, photos = (
        _beside(folder, name) or _beside(folder, f"visual_genome_{name}")
        for name in ("question_answers.json", "image_data.json")
    )
    return {"train": replace(train, genome=genome, genome_photos=photos), "val": val, "test": val}


def _beside(folder: Path, name: str) -> Path | None:
    """Return the file of that name, gzipped or not, or None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _roles(files: SplitFiles) -> dict[str, Path]:
    return {role: path for role, path in asdict(files).items() if path is not None}


def prepare(
    splits: Mapping[str, SplitFiles],
    features: Sequence[Path | FeatureFile],
    out: Path,
    *,
    instances: Sequence[Path] = (),
    vocabulary: Vocabulary | None = None,
    vocabulary_from: str = "train",
    answers: int = ANSWERS,
    skip_broken: bool = False,
    on_progress: OnProgress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write vocabulary, feature store and questions to ``out``, and return their numbers, ready for JSON.

    The same call resumes after an interruption, and a call with more ``features`` adds their photos. Words and answers
    are those of the split ``vocabulary_from``, train or trainval, unless ``vocabulary`` is passed. Photos are stored in
    the order of the files; of several photos with the same id, the first is kept. A question whose photo is in no file,
    and a record that cannot be read, are errors; with ``skip_broken`` both are left out and listed in ``skipped.json``.
    A test split none of whose photos is in the files is left out.
    With COCO ``instances`` files, questions are written with the relevance of proposals to what they name.
    """
    files: list[FeatureFile] = []
    for source in features:
        files += [source] if isinstance(source, FeatureFile) else find_feature_files(source)
    if not files:
        raise InputError("features must be at least one file, but there is none")
    sources = JOINED_SPLITS.get(vocabulary_from, (vocabulary_from,))
    missing = [split for split in sources if split not in splits]
    if vocabulary is None and missing:
        raise InputError(
            f"splits must include {missing[0]} to make a vocabulary from, but got "
            f"{', '.join(splits) or 'none'}; or give the vocabulary of an earlier folder"
        )
    described = _config(splits, instances, vocabulary, answers)
    open_run(out, described if sources == ("train",) else described | {"vocabulary_from": vocabulary_from})
    records, pairs = _read_splits(splits, on_progress)
    vocabulary = vocabulary or Vocabulary.of(chain.from_iterable(records[split] for split in sources), answers)
    vocabulary.save(out / VOCABULARY)
    inputs = list_inputs(files, out, out / PHOTOS, on_progress, skip_broken=skip_broken)
    left_out = without_photos(records, inputs)
    splits = {split: files for split, files in splits.items() if split not in left_out}
    for split in splits:
        check_photos(splits[split].questions, records[split], inputs, split=split, skip_broken=skip_broken)
    store = prepare_store(files, inputs, out / PHOTOS, on_progress, skip_broken=skip_broken)
    true_boxes = TrueBoxes.read(instances) if instances else None
    stored = set(store.image_ids.tolist())
    lost: dict[str, list[int]] = {}
    for split in splits:
        answerable = [record for record in records[split] if record.image_id in stored]
        lost[split] = [record.question_id for record in records[split] if record.image_id not in stored]
        if not answerable:
            raise InputError(f"questions of {split} must be about photos that can be read, but none is")
        if not is_written(out, split, len(answerable), store):
            relevance = None
            if true_boxes is not None:
                relevance = relevance_of(answerable, store, true_boxes, partial(on_progress, f"{split} true boxes"))
            remaining = pairs[split][~np.isin(pairs[split], lost[split]).any(1)]
            on_progress(f"{split} questions", 0, len(answerable))
            write_split(out, split, answerable, remaining, vocabulary, store, relevance)
            on_progress(f"{split} questions", len(answerable), len(answerable))
    broken = store.header.get("broken", [])
    if broken or any(lost.values()):
        write_text(out / SKIPPED, json.dumps({"records": broken, "questions": lost}, indent=1) + "\n")
    else:
        (out / SKIPPED).unlink(missing_ok=True)
    unanswerable, supervised = {}, {}
    for split in splits:
        questions = open_questions(out, split)
        unanswerable[split] = 0 if questions.answers is None else int((questions.answers < 0).all(1).sum())
        supervised[split] = 0 if questions.relevance is None else int((questions.relevance >= 0).any(1).sum())
    return {
        "questions": {split: len(records[split]) - len(lost[split]) for split in splits},
        "left_out": {split: len(records[split]) for split in left_out},  # none of their photos is in the files
        "unanswerable": unanswerable,  # no answer is in the vocabulary: not trained on
        "supervised": supervised,  # the relevant proposals are known
        "photos": len(store),
        "proposals": int(store.offsets[-1]),
        "features": store.features.shape[1],  # of a proposal
        "repeated_photos": store.header["repeated"],  # with the id of an earlier photo, which was kept
        "broken_records": broken,
        "lost_questions": {split: len(lost[split]) for split in splits},  # their photos are missing or broken
        "words": len(vocabulary.words),
        "answers": len(vocabulary.answers),
        "store_bytes": sum(path.stat().st_size for path in (out / PHOTOS).iterdir()),
    }


def _read_splits(
    splits: Mapping[str, SplitFiles], on_progress: OnProgress
) -> tuple[dict[str, list[QuestionRecord]], dict[str, NDArray[np.int64]]]:
    records: dict[str, list[QuestionRecord]] = {}
    pairs: dict[str, NDArray[np.int64]] = {}
    for number, (split, files) in enumerate(splits.items()):
        on_progress("reading questions", number, len(splits))
        records[split] = files.read(split)
        if not records[split]:
            raise InputError(f"{files.questions} must hold at least one question, but there is none")
        pairs[split] = np.empty((0, 2), np.int64)
        if files.pairs is not None:
            pairs[split] = read_pairs(files.pairs)
            check_pairs(files.pairs, pairs[split], records[split])
    on_progress("reading questions", len(splits), len(splits))
    return records, pairs


def _config(
    splits: Mapping[str, SplitFiles], instances: Sequence[Path], vocabulary: Vocabulary | None, answers: int
) -> dict[str, Any]:
    """Describe the input by name, size and a sample of each file's content, so that a changed file is noticed."""
    described: dict[str, Any] = {"format": FORMAT}
    if instances:
        described["instances"] = [describe_file(path) for path in instances]
    for split, files in splits.items():
        described |= {f"{split} {role}": describe_file(path) for role, path in _roles(files).items()}
    if vocabulary is None:
        return described | {"answers": answers}
    content = "\n".join((*vocabulary.words, "", *vocabulary.answers))
    return described | {"vocabulary": hashlib.sha256(content.encode()).hexdigest()[:16]}
