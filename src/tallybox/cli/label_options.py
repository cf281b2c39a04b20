"""What `tallybox fit` and `tallybox evaluate` share: options about labels, and lines about labels and trust."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from tallybox.cli.terminal import echo_line
from tallybox.detections.category_names import COCO_CATEGORIES, category_name_of
from tallybox.detections.labels import LabelSummary

MAX_NAMES = 3  # that a message lists


def label_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--category`` and ``--missing-is-zero``."""
    for option in (
        click.option(
            "--missing-is-zero", is_flag=True, help="Photos without labels and empty cells count 0, not as unknown."
        ),
        click.option("--category", "categories", multiple=True, metavar="NAME", help="Only these; may be repeated."),
    ):
        command = option(command)
    return command


def describe_labels(labels: LabelSummary, names: Mapping[int, str]) -> None:
    """Print what was taken from the labels and what was left out, and warn where there are no zeros."""
    names = names or COCO_CATEGORIES
    noun = "category" if labels.categories == 1 else "categories"
    echo_line(
        f"labels: {labels.photos:,} photos, {labels.categories} {noun}; "
        f"{labels.objects:,} counts of 1 or more, {labels.zeros:,} zeros",
        err=True,
    )
    unlabelled = labels.categories_without_labels
    for number, what in (
        (labels.photos_without_labels, "photos without labels"),
        (len(unlabelled), f"categories that the labels never name ({_listed(unlabelled, names)})"),
    ):
        if number:
            echo_line(f"left out: {number:,} {what}", err=True)
    if labels.photos_without_boxes:
        echo_line(f"taken as photos without boxes: {labels.photos_without_boxes:,} that only the labels have", err=True)
    if labels.never_zero:
        echo_line(
            f"Warning: no zeros to learn from for {_listed(labels.never_zero, names)}: every labelled photo has some. "
            "Add photos without any (a count of 0), or give --missing-is-zero if unlabelled photos have none.",
            err=True,
        )


def trust_line(right_by_width: Mapping[str, float]) -> str:
    """Return how often a count is right by how its interval looks, for people."""
    looks = {"0": "one number", "1-2": "1 or 2 wide", "3-4": "3 or 4 wide", "5+": "wider"}
    shares = ", ".join(f"{looks[width]} {100 * share:.0f} %" for width, share in right_by_width.items())
    return f"how often the count is right, by its interval: {shares}"


def _listed(category_ids: tuple[int, ...], names: Mapping[int, str]) -> str:
    shown = [category_name_of(category_id, names) for category_id in category_ids[:MAX_NAMES]]
    return ", ".join(shown) + (" ..." if len(category_ids) > MAX_NAMES else "")
