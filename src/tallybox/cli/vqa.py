"""`tallybox vqa`: VQA v2 from the official files to answers."""

import click

from tallybox.cli import LazyGroup

MODULE = "tallybox.cli.vqa_commands"  # imported when a command is used
COMMANDS = {
    "simulate": (MODULE, "Write a simulated data set in the official formats."),
    "features": (MODULE, "Write regions and features of your own photos."),
    "prepare": (MODULE, "Turn questions, answers and features into what training reads."),
    "train": (MODULE, "Train a model."),
    "evaluate": (MODULE, "Score trained models by the official rule."),
    "predict": (MODULE, "Write the results file of the test server."),
    "figures": (MODULE, "Draw the paper's figures from a run."),
    "demo": (MODULE, "All of it on a simulated world: four models, scored."),
}


@click.command(cls=LazyGroup, lazy_commands=COMMANDS)
def vqa() -> None:
    """Answer questions about photos: VQA v2."""
