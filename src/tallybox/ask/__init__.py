"""Questions about one's own photo: regions from the embedded detector, answers from a trained VQA model."""

from tallybox.ask.answering import SHIPPED_MODEL, Answerer, PhotoAnswer

__all__ = ["SHIPPED_MODEL", "Answerer", "PhotoAnswer"]
