"""The paper's counting component in one file of plain PyTorch, for reading and teaching.

It computes what `tallybox.Counter` computes for unmasked proposals, one equation after another, slowly and with memory
of size images × n³. Use the package in your model.

    python examples/counter_in_one_file.py
"""

import torch
from torch import Tensor, nn


def piecewise_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Apply a learned monotone function with f(0) = 0 and f(1) = 1 (appendix A); ``weight [segments]``."""
    segments = len(weight)
    rises = weight.abs() / weight.abs().sum()
    knots = nn.functional.pad(rises.cumsum(0), (1, 0))  # f at 0, 1/segments, ..., 1
    index = (x.detach() * segments).long().clamp(0, segments - 1)  # the segment of x
    return knots[index] + (x * segments - index) * rises[index]


def box_iou(boxes: Tensor) -> Tensor:
    """Return the IoU of every pair of boxes x1 y1 x2 y2: ``[B, n, 4]`` to ``[B, n, n]``."""
    a, b = boxes.unsqueeze(2), boxes.unsqueeze(1)
    width_height = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    intersection = width_height.prod(-1)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
    return intersection / (area.unsqueeze(2) + area.unsqueeze(1) - intersection)


class Counter(nn.Module):
    """Count objects from attention in [0, 1] and overlapping boxes that have an area."""

    def __init__(self, max_objects: int = 10, segments: int = 16) -> None:
        super().__init__()
        self.max_objects = max_objects
        self.weight = nn.Parameter(torch.ones(8, segments))

    def f(self, k: int, x: Tensor) -> Tensor:
        """Apply the paper's activation f_k."""
        return piecewise_linear(x, self.weight[k - 1])

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return features ``[B, max_objects + 1]`` from ``attention [B, N]`` and ``boxes [B, N, 4]``."""
        n = min(self.max_objects, attention.shape[1])
        a, kept = attention.topk(n)  # [B, n]
        boxes = boxes.gather(1, kept.unsqueeze(-1).expand(-1, -1, 4))

        # Edges between proposals: A by relevance (eq. 1), D by distance (eq. 2), none within an object (eq. 3).
        relevance = a.unsqueeze(2) * a.unsqueeze(1)
        distance = 1 - box_iou(boxes)
        edges = self.f(1, relevance) * self.f(2, distance)

        # Proposals of one object have similar edges (eq. 4); each counts one over their number (eq. 5).
        rows = self.f(4, relevance) * self.f(5, distance)
        row_difference = (rows.unsqueeze(2) - rows.unsqueeze(1)).abs()  # [B, i, j, k]
        difference = (a.unsqueeze(2) - a.unsqueeze(1)).abs()
        similarity = self.f(3, 1 - difference) * self.f(3, 1 - row_difference).prod(-1)
        scale = 1 / similarity.sum(-1)

        # The count matrix with self-loops (eq. 6); a complete graph of c nodes has c² edges (eq. 7).
        matrix = edges * scale.unsqueeze(2) * scale.unsqueeze(1) + torch.diag_embed(scale * self.f(1, a * a))
        count = (matrix.sum((1, 2)) + 1e-20).sqrt().clamp(max=self.max_objects).unsqueeze(-1)  # [B, 1]

        # A soft one-hot of the count (eq. 8) times the confidence (eq. 9 to 11).
        one_hot = (1 - (count - torch.arange(self.max_objects + 1)).abs()).clamp(min=0)
        from_attention = (self.f(6, a) - 0.5).abs().mean(-1)
        from_distance = (self.f(7, distance) - 0.5).abs().mean((1, 2))
        return one_hot * self.f(8, from_attention + from_distance).unsqueeze(-1)


if __name__ == "__main__":
    two_objects = torch.tensor([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 0.0, 3.0, 1.0]]])
    print(Counter(max_objects=3)(torch.ones(1, 3), two_objects))  # one of them is seen twice
