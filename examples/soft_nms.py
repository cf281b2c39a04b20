"""Your own counting component, trained on the toy task: Soft-NMS in one file.

tallybox toy train --side-length 0.2 --noise 0.5 --model counter --model examples.soft_nms:SoftNms

Soft-NMS (Bodla et al., 2017) lowers the score of a box for every better box that overlaps it. The sum of the lowered
scores is a count. The width of the decay is learned.
"""

import torch
from torch import Tensor, nn

import tallybox


class SoftNms(nn.Module):
    """The sum of scores after Soft-NMS, one-hot between the two nearest counts."""

    name = "soft-nms"

    def __init__(self, max_objects: int) -> None:
        super().__init__()
        self.max_objects = max_objects
        self.log_width = nn.Parameter(torch.zeros(()))

    def forward(self, scores: Tensor, boxes: Tensor, mask: Tensor) -> Tensor:
        """``scores [B, N]``, ``boxes [B, N, 4]`` and ``mask [B, N]`` to features ``[B, max_objects + 1]``."""
        scores = scores * mask
        overlap = tallybox.box_iou(boxes, boxes)  # [B, N, N]
        is_better = scores.unsqueeze(-2) > scores.unsqueeze(-1)  # [B, N, N], whether j scores more than i
        decay = (-(overlap**2) / self.log_width.exp()).exp()
        lowered = scores * torch.where(is_better, decay, 1).prod(-1)
        count = lowered.sum(-1, keepdim=True).clamp(max=self.max_objects)
        counts = torch.arange(self.max_objects + 1, device=count.device)
        return (1 - (count - counts).abs()).clamp(min=0)
