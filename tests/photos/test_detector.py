import re

import pytest

from tallybox.errors import InputError
from tallybox.photos.detector import detector_of


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("pikodet", "picodet"),
        ("PicoDet", "picodet"),
        ("transformer:facebook/detr-resnet-50", "transformers"),
        ("onnx:", "onnx:FILE"),
        ("torchvision", "torchvision:NAME"),
        ("a:b:c", "package.module:factory"),
        ("models/apples.onnx", "onnx:FILE"),
        ("", "package.module:factory"),
    ],
)
def test_an_unknown_name_is_one_line_with_what_may_have_been_meant(spec, meant):
    with pytest.raises(InputError, match=re.escape(meant)) as caught:
        detector_of(spec)
    assert repr(spec) in str(caught.value) or spec in str(caught.value)
    assert "\n" not in str(caught.value)
