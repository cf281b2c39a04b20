"""Darknet models as plain PyTorch: the layers of a ``.cfg`` with the numbers of a ``.weights`` file.

Covers what YOLOv3-tiny, YOLOv4-tiny and their relatives are made of. A section or option that is not covered is an
error, never a layer left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tallybox.errors import InputError
from tallybox.photos.darknet_config import Section, read_config
from tallybox.photos.packaged import DarknetFiles

LEAKY_SLOPE = 0.1
VARIANCE_FLOOR = 1e-5  # what Darknet adds to a variance before it takes the root


class RawProposals(NamedTuple):
    """Everything a YOLO model proposes for a batch, before any suppression: P places and anchors, C classes."""

    boxes: Tensor  # [B, P, 4]: centre x, centre y, width, height in pixels of the input
    objectness: Tensor  # [B, P] logits
    classes: Tensor  # [B, P, C] logits: which class, given that there is an object


class Convolution(nn.Module):
    """A convolution with Darknet's batch normalisation folded into its weights, and its activation."""

    def __init__(self, section: Section, channels: int) -> None:
        super().__init__()
        self.filters, self.size = section.number("filters", least=1), section.number("size", 1, least=1)
        self.normalised = bool(section.number("batch_normalize", 0))
        for option in ("groups", "dilation", "antialiasing", "binary", "xnor"):
            default = "1" if option in ("groups", "dilation") else "0"
            section.must_be(option, default, default)
        padding = self.size // 2 if section.number("pad", 0) else section.number("padding", 0)
        self.convolution = nn.Conv2d(
            channels, self.filters, self.size, section.number("stride", 1, least=1), padding, bias=True
        )
        activation = section.text("activation", "logistic")
        if activation not in ("leaky", "linear"):
            raise InputError(f"{section.where}: activation must be leaky or linear, but got {activation!r}")
        self.is_leaky = activation == "leaky"

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, channels, H, W]`` to ``[B, filters, H', W']``."""
        y: Tensor = self.convolution(x)
        return nn.functional.leaky_relu_(y, LEAKY_SLOPE) if self.is_leaky else y

    def numbers(self) -> int:
        """Return how many numbers of a weights file belong to this layer."""
        return self.convolution.weight.numel() + self.filters * (4 if self.normalised else 1)

    def load(self, values: NDArray[np.float32]) -> None:
        """Take them as they stand in the file: biases, (scales, means, variances,) weights."""
        numbers = torch.from_numpy(values.astype(np.float64))  # folded in double precision, stored in single
        weight = numbers[len(numbers) - self.convolution.weight.numel() :].reshape(self.convolution.weight.shape)
        bias = numbers[: self.filters]
        if self.normalised:
            scale, mean, variance = numbers[self.filters : 4 * self.filters].reshape(3, -1)
            factor = scale / (variance + VARIANCE_FLOOR).sqrt()
            weight, bias = weight * factor[:, None, None, None], bias - mean * factor
        with torch.no_grad():
            self.convolution.weight.copy_(weight)
            self.convolution.bias.copy_(bias)  # type: ignore[union-attr]  # it was asked for above


class Route(nn.Module):
    """Earlier layers side by side, or one of their equal parts."""

    def __init__(self, section: Section, index: int) -> None:
        super().__init__()
        self.sources = [_earlier(section, layer, index) for layer in section.numbers("layers")]
        self.groups, self.group = section.number("groups", 1, least=1), section.number("group_id", 0)
        if self.group >= self.groups:
            raise InputError(f"{section.where}: group_id must be below groups {self.groups}, but got {self.group}")

    def forward(self, earlier: list[Tensor]) -> Tensor:
        """Join maps ``[B, C, H, W]`` along C."""
        parts = [earlier[source].chunk(self.groups, 1)[self.group] for source in self.sources]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


class MaxPool(nn.Module):
    """Maxima of squares, padded to the right and below as Darknet does."""

    def __init__(self, section: Section) -> None:
        super().__init__()
        self.stride = section.number("stride", 1, least=1)
        self.size = section.number("size", self.stride, least=1)
        padding = section.number("padding", self.size - 1)
        self.before, self.after = padding // 2, padding - padding // 2

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, C, H, W]`` to about ``[B, C, H / stride, W / stride]``."""
        if self.size == self.stride and x.shape[-1] % self.stride == x.shape[-2] % self.stride == 0 and not self.before:
            return nn.functional.max_pool2d(x, self.size)
        sides = (self.before, self.after) * 2
        return nn.functional.max_pool2d(nn.functional.pad(x, sides, value=-torch.inf), self.size, self.stride)


class Upsample(nn.Module):
    """Every value repeated in a square."""

    def __init__(self, section: Section) -> None:
        super().__init__()
        self.stride = section.number("stride", 2, least=1)
        section.must_be("scale", "1", "1")

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, C, H, W]`` to ``[B, C, H * stride, W * stride]``."""
        return nn.functional.interpolate(x, scale_factor=self.stride, mode="nearest")


class YoloHead(nn.Module):
    """Reads a map as proposals: for each place and anchor a box, an objectness and class logits."""

    anchors: Tensor

    def __init__(self, section: Section) -> None:
        super().__init__()
        section.must_be("new_coords", "0", "0")
        anchors = torch.tensor(section.numbers("anchors"), dtype=torch.float32).reshape(-1, 2)
        mask = section.numbers("mask")
        if not mask or not all(0 <= index < len(anchors) for index in mask):
            raise InputError(f"{section.where}: mask must name some of the {len(anchors)} anchors, but got {mask}")
        self.register_buffer("anchors", anchors[mask])
        self.classes = section.number("classes", least=1)
        self.scale_xy = section.real("scale_x_y", 1.0)

    def forward(self, x: Tensor, size_wh: tuple[int, int]) -> RawProposals:
        """Map ``[B, A * (5 + C), H, W]`` to H * W * A proposals; ``size_wh`` is that of the input in pixels."""
        batch, _, height, width = x.shape
        y = x.reshape(batch, len(self.anchors), 5 + self.classes, height, width).permute(0, 3, 4, 1, 2)
        across = torch.arange(width, device=x.device, dtype=x.dtype)[None, :, None]
        down = torch.arange(height, device=x.device, dtype=x.dtype)[:, None, None]
        place = torch.stack(torch.broadcast_tensors(across, down), -1)  # [H, W, 1, 2]
        stride = torch.tensor((size_wh[0] / width, size_wh[1] / height), device=x.device, dtype=x.dtype)
        centre = (y[..., :2].sigmoid() * self.scale_xy - (self.scale_xy - 1) / 2 + place) * stride
        size = y[..., 2:4].exp() * self.anchors
        flat = y[..., 4:].reshape(batch, -1, 1 + self.classes)
        return RawProposals(torch.cat((centre, size), -1).reshape(batch, -1, 4), flat[..., 0], flat[..., 1:])


class DarknetModel(nn.Module):
    """A Darknet detector: photos ``[B, 3, H, W]`` in [0, 1] as RGB to all of its proposals."""

    def __init__(self, sections: list[Section]) -> None:
        super().__init__()
        network, *layers = sections
        self.size_wh = (network.number("width", 416, least=1), network.number("height", 416, least=1))
        channels = [network.number("channels", 3, least=1)]  # after each layer; the input comes first
        if channels != [3]:
            raise InputError(f"{network.where}: channels must be 3 (RGB), but got {channels[0]}")
        self.layers = nn.ModuleList()
        for index, section in enumerate(layers):
            layer, filters = _layer(section, channels, index)
            self.layers.append(layer)
            channels.append(filters)
        heads = [layer for layer in self.layers if isinstance(layer, YoloHead)]
        if len({head.classes for head in heads}) != 1:
            raise InputError(f"{network.where}: a detector must have [yolo] sections of equally many classes")
        self.classes = heads[0].classes

    def forward(self, photos: Tensor) -> RawProposals:
        """Propose boxes for photos whose sides are multiples of 32."""
        size_wh = (photos.shape[-1], photos.shape[-2])
        outputs: list[Tensor] = []
        found: list[RawProposals] = []
        x = photos
        for layer in self.layers:
            if isinstance(layer, YoloHead):
                found.append(layer(x, size_wh))
            else:
                x = layer(outputs) if isinstance(layer, Route) else layer(x)
            outputs.append(x)
        return RawProposals(*(torch.cat(parts, 1) for parts in zip(*found, strict=True)))


def load_darknet(files: DarknetFiles) -> DarknetModel:
    """Build the model that a ``.cfg`` describes, with the numbers of a ``.weights`` file."""
    model = DarknetModel(read_config(files.config))
    convolutions = [layer for layer in model.layers if isinstance(layer, Convolution)]
    values = read_weights(files.weights, sum(layer.numbers() for layer in convolutions), files.config)
    for layer in convolutions:
        layer.load(values[: layer.numbers()])
        values = values[layer.numbers() :]
    return model.eval()


def read_weights(path: Path, expected: int, config: Path) -> NDArray[np.float32]:
    """Read ``expected`` numbers behind a header of three int32 and how many photos were seen in training."""
    try:
        with path.open("rb") as file:
            start = file.read(12)
            if len(start) < 12:
                raise InputError(f"{path} must be Darknet weights, but it ends within its header, at byte {len(start)}")
            major, minor, _ = np.frombuffer(start, "<i4").tolist()
            if not (0 <= major < 1000 and 0 <= minor < 1000):
                raise InputError(f"{path} must be Darknet weights, but its header says version {major}.{minor}")
            header = 12 + (8 if major * 10 + minor >= 2 else 4)
            actual, whole = path.stat().st_size, header + 4 * expected
            if actual != whole:
                raise InputError(
                    f"{path} must have {whole} bytes for the layers of {config.name}, but it has {actual}; "
                    f"{'it is cut short' if actual < whole else 'it belongs to another configuration'}"
                )
            file.seek(header)
            values = np.frombuffer(file.read(4 * expected), "<f4")
    except OSError as error:
        raise InputError(f"{path} must be Darknet weights, but it cannot be read: {error}") from None
    if len(values) != expected or not np.isfinite(values).all():
        raise InputError(f"{path} must hold finite numbers only, but some are not; it is damaged")
    return values


def _layer(section: Section, channels: list[int], index: int) -> tuple[nn.Module, int]:
    """Return a layer and how many channels it leaves."""
    match section.name:
        case "convolutional" | "conv":
            convolution = Convolution(section, channels[-1])
            return convolution, convolution.filters
        case "route":
            route = Route(section, index)
            parts = [channels[source + 1] for source in route.sources]
            if any(part % route.groups for part in parts):
                raise InputError(f"{section.where}: groups must divide the channels {parts}, but got {route.groups}")
            return route, sum(part // route.groups for part in parts)
        case "maxpool" | "max":
            return MaxPool(section), channels[-1]
        case "upsample":
            return Upsample(section), channels[-1]
        case "yolo":
            head = YoloHead(section)
            if channels[-1] != len(head.anchors) * (5 + head.classes):
                raise InputError(
                    f"{section.where}: [yolo] must follow {len(head.anchors) * (5 + head.classes)} filters, "
                    f"but got {channels[-1]}"
                )
            return head, channels[-1]
    raise InputError(
        f"{section.where}: a section must be convolutional, route, maxpool, upsample or yolo, but got "
        f"{section.name!r}; export this model to another format and plug it in as a Detector"
    )


def _earlier(section: Section, layer: int, index: int) -> int:
    source = index + layer if layer < 0 else layer
    if not 0 <= source < index:
        raise InputError(f"{section.where}: layers must name earlier layers, but got {layer} at layer {index}")
    return source
