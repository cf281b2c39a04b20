"""The configuration of model and training: the paper's values as defaults, overridden by a TOML file."""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from tallybox.checks import check_count
from tallybox.errors import InputError, InputTypeError, did_you_mean

MODELS = ("baseline", "nms", "counter", "presence")
Padding = Literal["masked", "published"]
Level = Literal["free", "mean"]
Precision = Literal["auto", "bfloat16", "float32", "float64"]

# The ranges of numbers, by the names of fields of `ModelConfig` and `TrainingConfig`; other whole ones are at least 1.
RANGES: dict[str, tuple[tuple[str, ...], Callable[[float], bool]]] = {
    "in [0, 1)": (("dropout", "attention_dropout"), lambda value: 0 <= value < 1),
    "between 0 and 1": (("nms_iou_threshold", "nms_score_threshold"), lambda value: 0 <= value <= 1),
    "0 or more": (("feature_length", "attention_supervision"), lambda value: 0 <= value < math.inf),
    "between 0 and 2**63 - 1": (("seed",), lambda value: 0 <= value < 2**63),
    "2 or more, as batch normalisation needs": (("batch",), lambda value: value >= 2),
    "above 0": (("sharpness", "learning_rate", "count_rate"), lambda value: 0 < value < math.inf),
}


class _Checked:
    """A configuration that raises if a value is wrong."""

    def __post_init__(self) -> None:
        for setting in fields(cast(Any, self)):
            name, value = setting.name, getattr(self, setting.name)
            if get_origin(setting.type) is Literal and value not in (choices := get_args(setting.type)):
                hint = did_you_mean(value, [*choices])
                raise InputError(f"{name} must be one of {', '.join(choices)}, but got {value!r}{hint}")
            if setting.type is int and name not in ("seed", "batch"):
                check_count(name, value)
            for expected, (names, is_valid) in RANGES.items():
                if name in names and value is not None and not is_valid(value):
                    raise InputError(f"{name} must be {expected}, but got {value}")


@dataclass(frozen=True)
class ModelConfig(_Checked):
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
    padding: Padding = "masked"
    feature_length: float = 1.0  # L2 norm that each proposal's features are scaled to; 0: not scaled
    nms_iou_threshold: float = 0.5  # of the nms model
    nms_score_threshold: float = 0.0  # on the logistic of a proposal's mean glimpse; 0: no proposal is left out by it
    sharpness: float = 1.0  # factor of the first glimpse before the component that counts
    # Softmax ignores a constant that is added to all logits of a photo, so their level may drift until the component
    # sees 1 (or 0) everywhere. free: logits as they are, as in the paper. mean: minus their mean, plus a learned bias.
    level: Level = "free"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name not in MODELS and ":" not in self.name:
            hint = did_you_mean(self.name, [*MODELS])
            raise InputError(
                f"model name must be one of {', '.join(MODELS)} or package.module:Class, not {self.name!r}{hint}"
            )
        if self.padding == "published" and self.level != "free":
            raise InputError('padding = "published" needs level = "free", as in the published code')


@dataclass(frozen=True)
class TrainingConfig(_Checked):
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
    """A file's two tables, ``[model]`` and ``[training]``.

    >>> VqaConfig.from_dict({"model": {"name": "nms"}}).model.name
    'nms'
    >>> VqaConfig.from_dict({"training": {"epoch": 3}})
    Traceback (most recent call last):
    tallybox.errors.InputError: [training] has no epoch; did you mean 'epochs'?
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @classmethod
    def from_dict(cls, tables: dict[str, Any]) -> "VqaConfig":
        """Read values from tables; defaults are the paper's."""
        kinds = {"model": ModelConfig, "training": TrainingConfig}
        for name in tables:
            if name not in kinds:
                raise InputError(f"a configuration has no table {name}{did_you_mean(name, [*kinds])}")
        return cls(**{name: kind(**_values(kind, name, tables.get(name, {}))) for name, kind in kinds.items()})


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


def _values(config: type[Any], table: str, values: Any) -> dict[str, Any]:
    """Return a table's values, each of the type its default has."""
    if not isinstance(values, dict):
        raise InputTypeError(f"{table} must be a table, but got {values!r}; write [{table}] above its values")
    defaults = {setting.name: setting.default for setting in fields(config)}
    checked = {}
    for name, value in values.items():
        if name not in defaults:
            raise InputError(f"[{table}] has no {name}{did_you_mean(name, list(defaults))}")
        expected = float if defaults[name] is None else type(defaults[name])
        if expected is float and type(value) is int:
            value = float(value)
        if type(value) is not expected and not (value is None and defaults[name] is None):
            kind = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[expected]
            raise InputTypeError(f"{name} of [{table}] must be {kind}, but got {value!r}")
        checked[name] = value
    return checked
