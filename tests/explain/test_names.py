import re

from tallybox.counter.reference import Activations
from tallybox.explain import read_assets


def test_pages_name_the_activations_as_the_equations_do():
    script = read_assets("tallybox.explain")["functions.js"]
    table = re.search(r"const ACTIVATIONS = \[(.*?)\];", script, re.DOTALL)[1]
    assert re.findall(r'"([^"]+)"', table) == [name.replace("_", " ") for name in Activations._fields]
