"""Small random VQA batches and models."""

import torch

from tallybox.vqa.config import ModelConfig
from tallybox.vqa.model import Batch, DataSizes, VqaModel, scale_features

SIZES = DataSizes(words=12, answers=6, features=5, proposals=9)
SMALL = {"embedding": 4, "question": 7, "attention": 6, "classifier": 8, "max_objects": 4}
MODELS = ("baseline", "nms", "counter", "presence")


def small_model(name: str, *, dropout: float = 0.5, seed: int = 0, dtype: torch.dtype = torch.float64) -> VqaModel:
    """A model whose weights, statistics and count component are not those of an untrained one."""
    torch.manual_seed(seed)
    model = VqaModel(ModelConfig(name=name, dropout=dropout, **SMALL), SIZES).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        for name, statistic in model.named_buffers():
            if statistic.is_floating_point() and "running" in name:
                statistic.copy_(torch.rand_like(statistic) + 0.5)
    return model


def random_batch(questions: int = 4, proposals: int = 9, words: int = 5, seed: int = 1) -> Batch:
    """Questions of different lengths about photos with different numbers of proposals, at least one each."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(questions, proposals, 2, generator=g, dtype=torch.float64)
    size = 0.2 + torch.rand(questions, proposals, 2, generator=g, dtype=torch.float64)
    lengths = torch.randint(1, words + 1, (questions,), generator=g)
    numbers = torch.randint(1, proposals + 1, (questions,), generator=g)
    numbers[0], lengths[0] = proposals, words
    token = torch.randint(0, SIZES.words + 1, (questions, words), generator=g)
    return Batch(
        scale_features(torch.rand(questions, proposals, SIZES.features, generator=g), length=1).double(),
        torch.cat((corner, corner + size), -1),
        torch.arange(proposals) < numbers[:, None],
        token * (torch.arange(words) < lengths[:, None]),
        lengths,
    )
