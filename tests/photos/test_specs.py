import re
import subprocess
import sys

import pytest

from tallybox.errors import InputError, TallyboxError
from tallybox.photos import PicoDet
from tallybox.photos.specs import DEFAULT_SPEC, detector_of

FORMS = "must be picodet, transformers:MODEL, ultralytics:FILE, torchvision:NAME, onnx:FILE or package.module:factory"


def test_the_default_is_the_embedded_detector():
    assert isinstance(detector_of(DEFAULT_SPEC, device="cpu"), PicoDet)


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("pikodet", "did you mean picodet?"),
        ("PicoDet", "did you mean picodet?"),
        ("transformer:facebook/detr-resnet-50", "did you mean transformers:facebook/detr-resnet-50?"),
        ("torchvison:fcos_resnet50_fpn", "did you mean torchvision:fcos_resnet50_fpn?"),
        ("facebook/detr:main", "did you mean transformers:facebook/detr:main?"),
        ("a:b:c", "give one of them"),
        ("facebook/detr-resnet-50", "did you mean transformers:facebook/detr-resnet-50?"),
        ("models/apples.onnx", "did you mean onnx:models/apples.onnx?"),
        ("yolo11n.pt", "did you mean ultralytics:yolo11n.pt?"),
        ("onnx:", "say which, as in onnx:FILE"),
        ("torchvision", "say which, as in torchvision:NAME"),
        ("", "give one of them"),
    ],
)
def test_an_unknown_name_is_one_line_with_what_may_have_been_meant(spec, hint):
    with pytest.raises(InputError) as caught:
        detector_of(spec)
    assert str(caught.value) == f"detector {FORMS}, but got {spec!r}; {hint}"


@pytest.mark.parametrize("spec", ["picodet", "onnx:a.onnx", "torchvision:fcos_resnet50_fpn", "ultralytics:yolo11n.pt"])
def test_detectors_of_fixed_categories_take_no_phrases(spec):
    with pytest.raises(InputError, match=f"--text is for zero-shot models of transformers, but {spec} has categories"):
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
