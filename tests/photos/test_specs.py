import re
import subprocess
import sys

import pytest

from tallybox.errors import InputError, TallyboxError
from tallybox.photos.specs import detector_of


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


@pytest.mark.parametrize("spec", ["picodet", "onnx:a.onnx", "torchvision:fcos_resnet50_fpn", "ultralytics:yolo11n.pt"])
def test_detectors_of_fixed_categories_take_no_phrases(spec):
    with pytest.raises(InputError, match=f"{spec} .*--text"):
        detector_of(spec, texts=["a cup"])


@pytest.mark.parametrize(
    ("spec", "package", "install"),
    [
        ("transformers:detr", "transformers", "transformers"),
        ("ultralytics:yolo11n.pt", "ultralytics", "ultralytics"),
        ("torchvision:fcos_resnet50_fpn", "torchvision", "torchvision"),
        ("onnx:a.onnx", "onnxruntime", "'tallybox[onnx]'"),
    ],
)
def test_a_missing_library_is_one_line_that_says_how_to_install_it(monkeypatch, spec, package, install):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TallyboxError, match=re.escape(f"; pip install {install}")) as caught:
        detector_of(spec)
    assert str(caught.value).startswith(f"this detector needs the package {package}, which is not installed")


def test_no_library_is_imported_before_it_is_used():
    code = (
        "import sys\n"
        "import tallybox.photos.specs, tallybox.photos.detectors\n"
        "print([name for name in ('transformers', 'ultralytics', 'torchvision', 'onnxruntime') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
