"""The configuration of model and training: the paper's values as defaults, overridden by a TOML file."""

import math
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from tallybox.errors import InputError, InputTypeError, did_you_mean

MODELS = ("baseline", "nms", "counter", "presence")
Precision = Literal["auto", "bfloat16", "float32", "float64"]

KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
# The smallest and the largest value of numbers, by the names of fields; others are at least 1 if whole, else 0.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("dropout", "attention_dropout", "nms_iou_threshold", "nms_score_threshold", "difficulty"), (0, 1)),
    **dict.fromkeys(("train_photos", "val_photos"), (2, math.inf)),  # photos in pairs
    "test_photos": (0, math.inf),
    "batch": (2, math.inf),  # batch normalisation needs two
    "seed": (0, 2**63 - 1),
}


class Checked:
    """A configuration that raises if a value is out of range, or of another type than its default."""

    def __post_init__(self) -> None:
        for setting in fields(cast(Any, self)):
            name, value = setting.name, getattr(self, setting.name)
            if get_origin(setting.type) is Literal and value not in (choices := get_args(setting.type)):
                hint = did_you_mean(str(value), choices)
                raise InputError(f"{name} must be one of {', '.join(choices)}, but got {value!r}{hint}")
            if value is None and setting.default is None:
                continue
            kind = float if setting.default is None else type(setting.default)
            if type(value) is not kind and (kind, type(value)) != (float, int):
                raise InputTypeError(f"{name} must be {KINDS[kind]}, but got {value!r}")
            if kind in (int, float):
                low, high = RANGES.get(name, (1 if kind is int else 0, math.inf))
                if not low <= value <= high:
                    raise InputError(f"{name} must be between {low} and {high}, but got {value}")


@dataclass(frozen=True)
class ModelConfig(Checked):
    """The model of the paper's appendix "Baseline architecture", with or without a component that counts."""

    name: str = "counter"  # one of MODELS, or your own component as package.module:Class
    embedding: int = 300  # of a word
    question: int = 1024  # state of the GRU
    attention: int = 512  # hidden units that combine proposals and question
    glimpses: int = 2
    classifier: int = 1024  # hidden units before the answers
    dropout: float = 0.5  # before the GRU and every linear layer except the one after the count component
    attention_dropout: float | None = None  # before the layers of the attention; None: the same as dropout
    max_objects: int = 10  # of the count component
    segments: int = 16  # of its piecewise linear functions; the paper's d
    # How photos with fewer proposals are padded. masked: padding changes nothing. published: zeros take part in the
    # softmax and in the counter, as in the published code.
    padding: Literal["masked", "published"] = "masked"
    feature_length: float = 1.0  # L2 norm that each proposal's features are scaled to; 0: not scaled
    nms_iou_threshold: float = 0.5  # of the nms model
    nms_score_threshold: float = 0.0  # on the logistic of a proposal's mean glimpse; 0: no proposal is left out by it
    sharpness: float = 1.0  # factor of the first glimpse before the component that counts
    # Softmax ignores a constant that is added to all logits of a photo, so their level may drift until the component
    # sees 1 (or 0) everywhere. free: logits as they are, as in the paper. mean: minus their mean, plus a learned bias.
    level: Literal["free", "mean"] = "free"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name not in MODELS and ":" not in self.name:
            hint = did_you_mean(self.name, MODELS)
            raise InputError(f"name must be {', '.join(MODELS)} or package.module:Class, not {self.name!r}{hint}")
        if self.padding == "published" and self.level != "free":
            raise InputError('padding = "published" needs level = "free", as in the published code')


@dataclass(frozen=True)
class TrainingConfig(Checked):
    """The paper's training, and what the paper leaves open: precision, speed, logging."""

    batch: int = 256  # questions per step
    epochs: int = 100
    learning_rate: float = 0.0015  # of Adam
    half_life: int = 50_000  # steps after which the learning rate is half as high
    count_rate: float = 1.0  # factor of the learning rate for the count component
    attention_supervision: float = 0.0  # weight of the loss on the first glimpse; needs true boxes
    seed: int = 0
    precision: Precision = "auto"  # auto: bfloat16 matrix products on a GPU, else float32
    fast: bool = True  # on a GPU: layers compiled, and a whole step replayed as one CUDA graph
    log_steps: int = 100  # steps per line of the log


@dataclass(frozen=True)
class VqaConfig:
    """A file's two tables, ``[model]`` and ``[training]``."""

    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @classmethod
    def from_dict(cls, tables: dict[str, Any]) -> "VqaConfig":
        """Read values from tables; defaults are the paper's."""
        kinds: dict[str, type[Any]] = {"model": ModelConfig, "training": TrainingConfig}
        parts = {}
        for name, values in tables.items():
            if name not in kinds:
                raise InputError(f"a configuration has no table {name}{did_you_mean(name, kinds)}")
            if not isinstance(values, dict):
                raise InputTypeError(f"{name} must be a table, but got {values!r}; write [{name}] above its values")
            known = [setting.name for setting in fields(kinds[name])]
            if unknown := [key for key in values if key not in known]:
                raise InputError(f"[{name}] has no {unknown[0]}{did_you_mean(unknown[0], known)}")
            parts[name] = kinds[name](**values)
        return cls(**parts)


def read_configuration(path: Path | None, **overrides: dict[str, Any]) -> VqaConfig:
    """Read a TOML file, if any; values in ``model`` and ``training`` that are not None take precedence."""
    tables: dict[str, Any] = {}
    if path is not None:
        try:
            tables = tomllib.loads(path.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"Cannot read {path} as TOML: {error}") from None
    for name, values in overrides.items():
        tables[name] = tables.get(name, {}) | {key: value for key, value in values.items() if value is not None}
    try:
        return VqaConfig.from_dict(tables)
    except InputError as error:
        raise error if path is None else InputError(f"{path}: {error}") from None
