"""Warnings that torch raises about its own code while it compiles or exports, whatever that is."""

import pytest

TORCH_WARNS_ABOUT_ITSELF = [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in (
        r"`torch\.jit\.script_method` is deprecated:DeprecationWarning",  # inductor imports it
        r"`torch\._prims_common\.check` is deprecated:FutureWarning",  # inductor lowers diagonal with it
        r"`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning",  # the ONNX exporter asks so
        "The .grad attribute of a Tensor that is not a leaf:UserWarning",  # dynamo 2.11 looks at it
        r"<class 'torch\.autograd\.function\.Function'> should not be instantiated:DeprecationWarning",  # dynamo does
    )
]
