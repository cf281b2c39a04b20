"""PicoDet-S as a PyTorch module: LCNet backbone, LC-PAN neck, one head for each of four strides.

The layers are those of PaddleDetection's PicoDet (Yu et al. 2021), with batch normalisation folded into the
convolutions. The weights come from `data/picodet_s.safetensors`, which `research/picodet_weights.py` makes from the
published ONNX file; `data/PICODET_NOTICE.md` names their origin and licence. On a CPU, ONNX Runtime runs the same
network with the same weights: `research/picodet_graph.py` exports its graph to `data/picodet_s.onnx`.

Legend: B images, H and W sides of the input in pixels, h and w sides of a map (H / stride, W / stride), C categories.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import hardsigmoid, hardswish, interpolate, relu

from tallybox.files import import_optional

DATA = Path(__file__).parent / "data"
WEIGHTS = DATA / "picodet_s.safetensors"
GRAPH = DATA / "picodet_s.onnx"  # without weights: it refers to those of WEIGHTS

STRIDES = (8, 16, 32, 64)
CATEGORIES = 80
SIDES, BINS = 4, 8  # a side of a box is a distribution over the distances 0 ... 7, in strides
NECK_CHANNELS = 96
MAP_NAMES = tuple(f"{part}_{stride}" for stride in STRIDES for part in ("classes", "quality", "distances"))


class HeadMaps(NamedTuple):
    """What one head predicts for the cells of its grid."""

    class_logits: Tensor  # [B, C, h, w]
    quality_logits: Tensor  # [B, 1, h, w]: how well the box fits
    distance_logits: Tensor  # [B, SIDES * BINS, h, w]


class ActivatedConvolution(nn.Module):
    """A convolution that keeps the size (or halves it with stride 2), then hard swish."""

    def __init__(self, channels: int, filters: int, size: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, filters, size, stride, size // 2, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, channels, h, w]`` to ``[B, filters, h / stride, w / stride]``."""
        return hardswish(self.convolution(x), inplace=True)


class SqueezeExcitation(nn.Module):
    """Scale each channel by a gate computed from the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, channels // 4, 1)
        self.excite = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, channels, h, w]`` to the same shape."""
        return x * hardsigmoid(self.excite(relu(self.squeeze(x.mean((2, 3), keepdim=True)))))


class SeparableBlock(nn.Module):
    """A depthwise convolution, squeeze-and-excitation where ``gated``, and a pointwise convolution."""

    def __init__(self, channels: int, filters: int, size: int, *, stride: int = 1, gated: bool = False) -> None:
        super().__init__()
        self.depthwise = ActivatedConvolution(channels, channels, size, stride=stride, groups=channels)
        self.gate = SqueezeExcitation(channels) if gated else nn.Identity()
        self.pointwise = ActivatedConvolution(channels, filters, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, channels, h, w]`` to ``[B, filters, h / stride, w / stride]``."""
        y: Tensor = self.pointwise(self.gate(self.depthwise(x)))
        return y


class Backbone(nn.Module):
    """LCNet: the image ``[B, 3, H, W]`` to maps at strides 8, 16 and 32 with 96, 192 and 384 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.to_stride_8 = nn.Sequential(
            ActivatedConvolution(3, 16, 3, stride=2),
            SeparableBlock(16, 24, 3),
            SeparableBlock(24, 48, 3, stride=2),
            SeparableBlock(48, 48, 3),
            SeparableBlock(48, 96, 3, stride=2),
            SeparableBlock(96, 96, 3),
        )
        same = (SeparableBlock(192, 192, 5) for _ in range(5))
        self.to_stride_16 = nn.Sequential(SeparableBlock(96, 192, 3, stride=2), *same)
        self.to_stride_32 = nn.Sequential(
            SeparableBlock(192, 384, 5, stride=2, gated=True), SeparableBlock(384, 384, 5, gated=True)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the maps at strides 8, 16 and 32."""
        at_8 = self.to_stride_8(images)
        at_16 = self.to_stride_16(at_8)
        return at_8, at_16, self.to_stride_32(at_16)


class Neck(nn.Module):
    """LC-PAN: mixes the backbone's maps top-down, then bottom-up, and adds a map at stride 64."""

    def __init__(self) -> None:
        super().__init__()
        channels = NECK_CHANNELS
        self.reduce_8, self.reduce_16, self.reduce_32 = (
            ActivatedConvolution(backbone_channels, channels, 1) for backbone_channels in (96, 192, 384)
        )
        self.top_down_16, self.top_down_8, self.bottom_up_16, self.bottom_up_32 = (
            nn.Sequential(SeparableBlock(2 * channels, 2 * channels, 5), SeparableBlock(2 * channels, channels, 5))
            for _ in range(4)
        )
        self.down_8, self.down_16, self.down_32_reduced, self.down_32 = (
            SeparableBlock(channels, channels, 5, stride=2) for _ in range(4)
        )

    def forward(self, at_8: Tensor, at_16: Tensor, at_32: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return a map ``[B, 96, h, w]`` for each of the four strides."""
        reduced_8, reduced_16, reduced_32 = self.reduce_8(at_8), self.reduce_16(at_16), self.reduce_32(at_32)
        down_16 = self.top_down_16(torch.cat((_doubled(reduced_32), reduced_16), 1))
        out_8 = self.top_down_8(torch.cat((_doubled(down_16), reduced_8), 1))
        out_16 = self.bottom_up_16(torch.cat((self.down_8(out_8), down_16), 1))
        out_32 = self.bottom_up_32(torch.cat((self.down_16(out_16), reduced_32), 1))
        return out_8, out_16, out_32, self.down_32_reduced(reduced_32) + self.down_32(out_32)


class ToOneChannel(nn.Module):
    """A convolution to one channel, then hard swish, as a depthwise convolution and a sum.

    The same numbers eleven times as fast (0.3 ms for 96 channels of 64 x 80 on one core): oneDNN is slow at one filter.
    """

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, size, padding=size // 2, groups=channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, channels, h, w]`` to ``[B, 1, h, w]``."""
        return hardswish(self.depthwise(x).sum(1, keepdim=True) + self.bias)


class Head(nn.Module):
    """What is in each cell of one map, and how far the sides of its box are from the centre of the cell."""

    def __init__(self) -> None:
        super().__init__()
        channels = NECK_CHANNELS
        self.tower = nn.Sequential(*(SeparableBlock(channels, channels, 5) for _ in range(2)))
        self.gate = nn.Conv2d(channels, channels, 1)
        self.mix = ActivatedConvolution(channels, channels, 1)
        self.classes = nn.Conv2d(channels, CATEGORIES, 1)
        self.distances = nn.Conv2d(channels, SIDES * BINS, 1)
        self.quality = nn.Sequential(ToOneChannel(channels, 5), nn.Conv2d(1, 1, 1))

    def forward(self, x: Tensor) -> HeadMaps:
        """Read a map ``[B, 96, h, w]``."""
        x = self.tower(x)
        mixed = self.mix(x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid())
        return HeadMaps(self.classes(mixed), self.quality(x), self.distances(mixed))


class PicoDetNetwork(nn.Module):
    """From normalised images ``[B, 3, H, W]``, H and W multiples of 64, to maps at the strides 8, 16, 32 and 64."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.neck = Neck()
        self.heads = nn.ModuleList(Head() for _ in STRIDES)

    def forward(self, images: Tensor) -> list[HeadMaps]:
        """Return the maps of each stride."""
        maps = self.neck(*self.backbone(images))
        return [head(x) for head, x in zip(self.heads, maps, strict=True)]


def load_picodet_network() -> PicoDetNetwork:
    """Return the network with the weights that come with the package."""
    load_file = import_optional("safetensors.torch", needed_for="the detector", install="'tallybox[photos]'").load_file
    with torch.device("meta"):  # the weights replace every tensor: none need be initialised
        network = PicoDetNetwork()
    network.load_state_dict(load_file(WEIGHTS), assign=True)
    # On one core 51 ms for 640 x 512 against 72 in the usual order of memory.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs leave it out
    return network.eval().requires_grad_(False)


class CpuNetwork:
    """The network in ONNX Runtime, on the caller's thread; threads may share it.

    On one core 1.8 times as fast as in PyTorch (640 x 512 pixels); class logits differ by less than 1e-4.
    """

    def __init__(self) -> None:
        runtime = import_optional("onnxruntime", needed_for="the detector", install="'tallybox[photos]'")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # callers share photos out among threads
        self._session = runtime.InferenceSession(GRAPH, options, providers=["CPUExecutionProvider"])

    def __call__(self, images: Tensor) -> list[HeadMaps]:
        """Return the maps of each stride for images ``[B, 3, H, W]``."""
        maps = map(torch.from_numpy, self._session.run(MAP_NAMES, {"images": images.numpy()}))
        return [HeadMaps(*parts) for parts in zip(maps, maps, maps, strict=True)]


def _doubled(x: Tensor) -> Tensor:
    return interpolate(x, scale_factor=2, mode="nearest")
