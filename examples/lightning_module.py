"""A counting layer in a Lightning module, trained on the paper's toy task.

    pip install lightning
    python examples/lightning_module.py

tallybox does not depend on Lightning. A layer is an ordinary module, so `configure_optimizers` gives it a parameter
group of its own and checkpoints hold its parameters. Half a minute on a CPU core; the accuracy is 0.65.
"""

import lightning
import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss
from torch.utils.data import DataLoader, IterableDataset

import tallybox
from tallybox.toy import draw_images


class ToyBatches(IterableDataset):
    """Batches of scores ``[B, 10]``, boxes ``[B, 10, 4]`` and true counts ``[B]``, at l = 0.2 and q = 0.5."""

    def __init__(self, batches: int, seed: int) -> None:
        self.batches, self.seed = batches, seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.batches):
            drawn = draw_images(torch.tensor([0.2]), torch.tensor([0.5]), images=256, boxes=10, generator=generator)
            yield drawn.attention[0], drawn.boxes[0], drawn.count[0]


class CountObjects(lightning.LightningModule):
    """The presence counter with a learned scale of the scores, trained from counts alone."""

    def __init__(self, max_objects: int = 10, learning_rate: float = 0.03) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.scale = nn.Parameter(torch.ones(()))
        self.count = tallybox.PresenceCounter(max_objects, logits=True)

    def forward(self, scores: Tensor, boxes: Tensor) -> Tensor:
        """Return log-probabilities of 0 … max_objects, ``[B, max_objects + 1]``."""
        return self.count(self.scale * scores.logit(1e-6), boxes)[..., :-1]

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of one batch."""
        scores, boxes, count = batch
        return nll_loss(self(scores, boxes), count)

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> None:
        """Log the accuracy of one batch."""
        scores, boxes, count = batch
        self.log("accuracy", (self(scores, boxes).argmax(-1) == count).float().mean())

    def configure_optimizers(self) -> dict:
        """Use a high learning rate for the layer, with a warm-up, and a lower one for the rest."""
        rate = self.hparams.learning_rate
        groups = [{"params": self.count.parameters(), "lr": rate}, {"params": [self.scale], "lr": rate / 10}]
        optimiser = torch.optim.Adam(groups)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, [rate, rate / 10], total_steps=steps)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(steps: int = 500, **options) -> float:
    """Train for so many steps and return the accuracy on new images."""
    lightning.seed_everything(0)
    trainer = lightning.Trainer(max_steps=steps, logger=False, enable_checkpointing=False, **options)
    model = CountObjects()
    trainer.fit(model, DataLoader(ToyBatches(steps, seed=0), batch_size=None))
    (scores,) = trainer.validate(model, DataLoader(ToyBatches(20, seed=1), batch_size=None))
    return scores["accuracy"]


if __name__ == "__main__":
    print(f"accuracy {train():.3f}")
