"""Make the weights of the embedded detector from PicoDet-S as an ONNX file.

    python research/picodet_weights.py picodet_s.onnx src/tallybox/photos/data/picodet_s.safetensors

The ONNX file is PaddleDetection's PicoDet-S converted with paddle2onnx, its batch normalisation folded into the
convolutions. Its convolutions are named by the layers of PaddleDetection, numbered in the order of definition; this
script gives each its name in `tallybox.photos.network`.
"""

import argparse
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import onnx
import torch
from onnx.numpy_helper import to_array
from safetensors.torch import save_file
from torch import nn

from tallybox.photos.network import STRIDES, PicoDetNetwork, SeparableBlock, SqueezeExcitation, ToOneChannel

# The number of a head's convolution without batch normalisation, and how far those of the next head are from it.
FIRST_GATE, FIRST_CLASSES, STEP = 135, 137, 8


def convolutions_with_names(network: PicoDetNetwork) -> Iterator[tuple[nn.Conv2d | ToOneChannel, str]]:
    """Yield each convolution and the name of its output in the ONNX file."""
    normalised = (f"batch_norm_{number}.tmp_2" for number in count())
    gates = (f"conv2d_{number}.tmp_0" for number in (112, 113, 115, 116))

    def of_blocks(*blocks: nn.Module) -> Iterator[tuple[nn.Conv2d, str]]:
        for block in blocks:
            if isinstance(block, SeparableBlock):
                yield block.depthwise.convolution, next(normalised)
                if isinstance(block.gate, SqueezeExcitation):
                    yield block.gate.squeeze, next(gates)
                    yield block.gate.excite, next(gates)
                yield block.pointwise.convolution, next(normalised)
            else:
                yield block.convolution, next(normalised)

    backbone, neck = network.backbone, network.neck
    yield from of_blocks(*backbone.to_stride_8, *backbone.to_stride_16, *backbone.to_stride_32)
    yield from of_blocks(neck.reduce_8, neck.reduce_16, neck.reduce_32, *neck.top_down_16, *neck.top_down_8)
    yield from of_blocks(neck.down_8, *neck.bottom_up_16, neck.down_16, *neck.bottom_up_32)
    yield from of_blocks(neck.down_32_reduced, neck.down_32)
    for level, (stride, head) in enumerate(zip(STRIDES, network.heads, strict=True)):
        yield from of_blocks(*head.tower, head.mix)
        yield head.quality[0], next(normalised)
        yield head.quality[1], next(normalised)
        yield head.gate, f"conv2d_{FIRST_GATE + STEP * level}.tmp_0"
        yield head.classes, f"conv2d_{FIRST_CLASSES + STEP * level}.tmp_0"
        yield head.distances, f"distances_{stride}"


def main() -> None:
    """Write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("onnx_file", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    graph = onnx.load(given.onnx_file).graph
    stored = {tensor.name: torch.from_numpy(to_array(tensor).copy()) for tensor in graph.initializer}
    by_output = {node.output[0]: node.input[1:3] for node in graph.node if node.op_type == "Conv"}
    network = PicoDetNetwork()
    with torch.no_grad():
        for convolution, name in convolutions_with_names(network):
            weight, bias = (stored[key] for key in by_output.pop(name))
            if isinstance(convolution, ToOneChannel):
                convolution.depthwise.weight.copy_(weight.transpose(0, 1))
            else:
                convolution.weight.copy_(weight)
            convolution.bias.copy_(bias)
    if by_output:
        raise SystemExit(f"the network has no place for {sorted(by_output)}")
    save_file(network.state_dict(), given.out)


if __name__ == "__main__":
    main()
