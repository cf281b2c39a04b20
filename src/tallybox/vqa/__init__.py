"""Visual question answering with a count component: the public names; see docs/reference/vqa-training.md."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallybox.vqa.config import ModelConfig as ModelConfig
    from tallybox.vqa.config import TrainingConfig as TrainingConfig
    from tallybox.vqa.config import VqaConfig as VqaConfig
    from tallybox.vqa.data.official import official_files as official_files
    from tallybox.vqa.data.official import read_pairs as read_pairs
    from tallybox.vqa.data.official import read_records as read_records
    from tallybox.vqa.data.prepare import prepare as prepare
    from tallybox.vqa.data.store import write_features as write_features
    from tallybox.vqa.model import Batch as Batch
    from tallybox.vqa.model import DataSizes as DataSizes
    from tallybox.vqa.model import VqaModel as VqaModel
    from tallybox.vqa.prediction import predict_run as predict_run
    from tallybox.vqa.prediction import read_answers as read_answers
    from tallybox.vqa.scoring import all_scores as all_scores
    from tallybox.vqa.simulation import World as World
    from tallybox.vqa.simulation import simulate as simulate
    from tallybox.vqa.training import train_prepared as train_prepared

_MODULES = {
    "config": ("ModelConfig", "TrainingConfig", "VqaConfig"),
    "data.official": ("official_files", "read_pairs", "read_records"),
    "data.prepare": ("prepare",),
    "data.store": ("write_features",),
    "model": ("Batch", "DataSizes", "VqaModel"),
    "prediction": ("predict_run", "read_answers"),
    "scoring": ("all_scores",),
    "simulation": ("World", "simulate"),
    "training": ("train_prepared",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tallybox.vqa' has no attribute {name!r}")
    return getattr(import_module(f"tallybox.vqa.{_MODULE_OF[name]}"), name)
