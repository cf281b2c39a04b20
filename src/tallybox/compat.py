"""A one-line swap for the published counting module: `tallybox.counter.published` under its public name."""

from tallybox.counter.published import Counter as Counter
from tallybox.counter.published import PiecewiseLin as PiecewiseLin
