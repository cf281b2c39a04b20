"""Make the graph with which ONNX Runtime runs the embedded detector on a CPU.

    python research/picodet_graph.py src/tallybox/photos/data

The graph is `tallybox.photos.network` exported to ONNX, with height, width and batch free. Its large tensors are not
stored a second time: they are references (ONNX's external data) to the bytes of `picodet_s.safetensors`.
"""

import argparse
import json
import struct
import tempfile
from pathlib import Path

import onnx
import torch
from onnx.external_data_helper import set_external_data
from onnx.numpy_helper import to_array
from torch import Tensor, nn
from torch.export import Dim

from tallybox.photos.network import MAP_NAMES, load_picodet_network

WEIGHTS = "picodet_s.safetensors"
MIN_BYTES = 256  # smaller tensors stay in the graph


class FlatNetwork(nn.Module):
    """The network with its maps in one tuple, as ONNX has them."""

    def __init__(self) -> None:
        super().__init__()
        self.network = load_picodet_network()

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Map ``[B, 3, H, W]`` to three maps for each stride."""
        return tuple(part for maps in self.network(images) for part in maps)


def stored_bytes(path: Path) -> dict[bytes, tuple[int, int]]:
    """Return where a safetensors file stores each content: offset and length."""
    raw = path.read_bytes()
    (header_length,) = struct.unpack("<Q", raw[:8])
    start = 8 + header_length
    places = [entry["data_offsets"] for name, entry in json.loads(raw[8:start]).items() if name != "__metadata__"]
    return {raw[start + first : start + stop]: (start + first, stop - first) for first, stop in places}


def main() -> None:
    """Write the graph beside the parameters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    height, width = Dim("height", min=1, max=64), Dim("width", min=1, max=64)
    with tempfile.TemporaryDirectory() as temporary:
        exported = Path(temporary) / "network.onnx"
        torch.onnx.export(
            FlatNetwork().eval(),
            (torch.zeros(2, 3, 128, 192),),
            exported,
            dynamo=True,
            external_data=False,
            dynamic_shapes={"images": {0: Dim("batch", max=1024), 2: 64 * height, 3: 64 * width}},
            input_names=["images"],
            output_names=list(MAP_NAMES),
        )
        model = onnx.load(exported)
    places = stored_bytes(folder / WEIGHTS)
    for tensor in model.graph.initializer:
        content = to_array(tensor).tobytes()
        if len(content) >= MIN_BYTES:
            offset, length = places[content]
            tensor.raw_data = content
            set_external_data(tensor, WEIGHTS, offset, length)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
    for node in model.graph.node:
        node.ClearField("metadata_props")
        node.doc_string = ""
    del model.graph.value_info[:], model.graph.metadata_props[:], model.metadata_props[:]
    (folder / "picodet_s.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
