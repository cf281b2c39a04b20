"""Questions about a photo of one's own: what the embedded detector sees, asked about with a trained VQA model."""

from tallybox.asking.answering import Answerer, Asked
from tallybox.asking.shipped import SHIPPED_MODEL

__all__ = ["SHIPPED_MODEL", "Answerer", "Asked"]
