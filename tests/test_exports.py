import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tallybox

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path.relative_to(ROOT)
    for path in (
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("examples/**/*.py"),
    )
)


def public_surface() -> str:
    """Return the section of docs/architecture.md that says what is public."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    return page.split("## Public surface\n")[1].split("\n## ")[0]


def public_modules() -> dict[str, list[str]]:
    """Return the modules beside the top level that the section lists, with their names."""
    rows = re.findall(r"^\| `(tallybox\.[\w.]+)` \| (.+) \|$", public_surface(), re.MULTILINE)
    return {module: re.findall(r"`(\w+)`", names) for module, names in rows}


def uses(text: str) -> set[tuple[str, str]]:
    """Return what a page imports from tallybox or names as ``tallybox.…``: pairs of a module and a dotted name."""
    found = set()
    for module, parenthesised, plain in re.findall(
        r"from (tallybox[\w.]*) import (?:\(([^)]*)\)|([\w, ]+))", text.replace("\n... ", "\n")
    ):
        names = re.split(r",\s*", (parenthesised or plain).strip().rstrip(","))
        found |= {(module, name.split(" as ")[0].strip()) for name in names}
    for dotted in re.findall(r"(?<![\w/.-])(?<!-m )(?<!from )tallybox\.([A-Za-z_][\w.]*\w)", text):
        found.add(("tallybox", dotted))
    return found


def is_public(module: str, dotted: str) -> bool:
    """Tell whether a name that exists is public; a module may be named on a page to say where its code is."""
    modules = public_modules()
    first, *rest = dotted.split(".")
    if dotted == "__all__":
        return True
    if module == "tallybox" and first in tallybox.__all__ and first != "compat":
        owner = getattr(tallybox, first)
        return all((owner := getattr(owner, name, None)) is not None for name in rest)
    path = f"{module}.{dotted}"
    for public, names in modules.items():
        if path == public or (path.startswith(f"{public}.") and path.removeprefix(f"{public}.").split(".")[0] in names):
            return True
    return module == "tallybox" and (
        (ROOT / "src" / path.replace(".", "/")).is_dir() or (ROOT / "src" / f"{path.replace('.', '/')}.py").is_file()
    )


def test_public_names_are_those_of_the_map():
    listed = re.findall(r"^\| (`.+`) \| [^`]+ \|$", public_surface(), re.MULTILINE)
    names = [name for row in listed for name in re.findall(r"`(\w+)`", row)]
    assert sorted(names) == sorted(tallybox.__all__)


def test_names_of_the_contract_are_public():
    assert {
        "CountEstimator",
        "Counter",
        "Detections",
        "PhotoCounter",
        "PiecewiseLinear",
        "PresenceCounter",
        "TallyboxError",
        "box_iou",
        "compat",
        "count_features",
        "piecewise_linear",
    } <= set(tallybox.__all__)


@pytest.mark.parametrize("module", public_modules())
def test_a_public_module_has_the_names_the_map_lists(module):
    names = public_modules()[module]
    assert names
    for name in names:
        assert hasattr(import_module(module), name), name


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_uses_only_public_names(page):
    private = [use for use in uses((ROOT / page).read_text()) if not is_public(*use)]
    assert private == []


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ("from tallybox import Counter, Detections  # two", False),
        ("from tallybox import (\n    Counter,\n    evaluate,\n)", False),
        ("from tallybox.compat import Counter", False),
        ("`tallybox.Counter.from_published(x)` and tallybox.compat.Counter.", False),
        ("the rules are in `tallybox.checks`", False),
        ("tallybox.errors.InputError: attention must be", False),
        ("from tallybox import Countr", True),
        ("from tallybox.detections.detections import Detections", True),
        ("from tallybox.checks import check_values", True),
        ("`tallybox.Counter.from_nothing`", True),
        ("`tallybox.checks.check_floating`", True),
        ("`tallybox.photos.features.choose_regions(boxes)`", True),
        ("see `tallybox.geometry`", True),
    ],
)
def test_a_private_name_on_a_page_is_found(text, private):
    assert uses(text)
    assert (not all(is_public(*use) for use in uses(text))) is private


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_files_of_the_package_that_a_page_names_exist(page):
    named = re.findall(r"src/tallybox[\w/.]*\w", (ROOT / page).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", tallybox.__all__)
def test_public_name_resolves_and_is_listed(name):
    assert getattr(tallybox, name) is not None
    assert name in dir(tallybox)


def test_a_star_import_gives_every_public_name():
    namespace: dict[str, object] = {}
    exec("from tallybox import *", namespace)
    assert set(tallybox.__all__) <= set(namespace)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tallybox' has no attribute 'Countr'"):
        tallybox.Countr  # noqa: B018 - the access is what is tested


def test_importing_the_package_does_not_import_torch():
    code = "import sys, tallybox; assert 'torch' not in sys.modules; tallybox.TallyboxError"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert tallybox.__version__ == version("tallybox")


def test_a_public_name_is_looked_up_once():
    from tallybox.counter.functional import count_features

    assert tallybox.count_features is count_features
    assert vars(tallybox)["count_features"] is count_features
