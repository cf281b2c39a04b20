"""`tallybox vqa`: VQA v2 from the official files to answers."""

import click

from tallybox.cli import LazyGroup

# Each command's module, imported when the command is used.
COMMANDS = {
    "simulate": ("tallybox.cli.vqa.simulate", "Write a simulated data set in the official formats."),
    "features": ("tallybox.cli.vqa.features", "Write regions and features of your own photos."),
    "prepare": ("tallybox.cli.vqa.prepare", "Turn questions, answers and features into what training reads."),
    "train": ("tallybox.cli.vqa.train", "Train a model."),
    "evaluate": ("tallybox.cli.vqa.evaluate", "Score trained models by the official rule."),
    "predict": ("tallybox.cli.vqa.predict", "Write the results file of the test server."),
    "figures": ("tallybox.cli.vqa.figures", "Draw the paper's figures from a run."),
    "demo": ("tallybox.cli.vqa.demo", "All of it on a simulated world: four models, scored."),
}


@click.command(cls=LazyGroup, lazy_commands=COMMANDS)
def vqa() -> None:
    """Answer questions about photos: VQA v2."""
