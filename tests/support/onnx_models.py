"""A small detector as an ONNX file, and the same equations in PyTorch."""

from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

STRIDE = 16
BOX_SCALE = 40.0

Layout = Literal["labels", "scores"]


def head_weight(classes: int) -> np.ndarray:
    """Return the weights of a convolution from pixels to a corner, a size and class logits, for each cell."""
    return np.random.default_rng(0).normal(0, 0.03, (4 + classes, 3, STRIDE, STRIDE)).astype(np.float32)


def torch_outputs(images: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return boxes ``[B, N, 4]`` and scores ``[B, N, C]`` for images ``[B, 3, H, W]``."""
    cells = torch.nn.functional.conv2d(images, torch.from_numpy(head_weight(classes)), stride=STRIDE)
    corner, size, logits = cells.flatten(2).mT.split((2, 2, classes), -1)
    corner, size = BOX_SCALE * corner.abs(), BOX_SCALE * size.abs()
    return torch.cat((corner, corner + size), -1), logits.sigmoid()


def write_onnx(
    path: Path,
    *,
    layout: Layout = "labels",
    classes: int = 3,
    input_shape: tuple[object, ...] = ("B", 3, "H", "W"),
    names: str | None = '{"0": "pear", "1": "mug", "2": "fig"}',
    output_names: tuple[str, ...] = ("boxes", "scores", "labels"),
) -> Path:
    """Write the detector in the layout of docs/reference/file-formats.md."""
    node = helper.make_node
    boxes, scores, labels = (*output_names, "labels")[:3]
    constants = {
        "weight": head_weight(classes),
        "flat": np.array([0, 4 + classes, -1], np.int64),
        "parts": np.array([2, 2, classes], np.int64),
        "scale": np.array(BOX_SCALE, np.float32),
        "last": np.array([-1], np.int64),
    }
    nodes = [
        node("Conv", ["pixels", "weight"], ["cells"], strides=[STRIDE, STRIDE], kernel_shape=[STRIDE, STRIDE]),
        node("Reshape", ["cells", "flat"], ["rows"]),
        node("Transpose", ["rows"], ["columns"], perm=[0, 2, 1]),
        node("Split", ["columns", "parts"], ["corner_raw", "size_raw", "logits"], axis=2),
        node("Abs", ["corner_raw"], ["corner_abs"]),
        node("Abs", ["size_raw"], ["size_abs"]),
        node("Mul", ["corner_abs", "scale"], ["corner"]),
        node("Mul", ["size_abs", "scale"], ["size"]),
        node("Add", ["corner", "size"], ["other"]),
        node("Concat", ["corner", "other"], [boxes], axis=2),
    ]
    outputs = [(boxes, TensorProto.FLOAT, ("B", "N", 4))]
    if layout == "scores":
        nodes.append(node("Sigmoid", ["logits"], [scores]))
        outputs.append((scores, TensorProto.FLOAT, ("B", "N", classes)))
    else:
        nodes += [
            node("Sigmoid", ["logits"], ["each"]),
            node("ReduceMax", ["each", "last"], [scores], keepdims=0),
            node("ArgMax", ["each"], [labels], axis=2, keepdims=0),
        ]
        outputs += [(scores, TensorProto.FLOAT, ("B", "N")), (labels, TensorProto.INT64, ("B", "N"))]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, input_shape)],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    if names is not None:
        helper.set_model_props(model, {"names": names})
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path
