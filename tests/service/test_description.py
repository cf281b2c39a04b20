import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance, unsupported_method

# That there are as many scores as boxes, and that x1 <= x2, no schema can say: such bodies are allowed and refused.
NOT_HELD_TO = [unsupported_method, positive_data_acceptance]

OPERATIONS = [
    ("POST", "/v1/count"),
    ("POST", "/v1/count/photo"),
    ("POST", "/v1/explain"),
    ("GET", "/v1/categories"),
    ("GET", "/v1/parameters"),
    ("GET", "/v1/photos"),
    ("GET", "/v1/scenes"),
    ("GET", "/v1/scenes/toy"),
    ("GET", "/healthz"),
]
# Nothing that these are given can be wrong.
TAKE_NOTHING = {"/v1/categories", "/v1/parameters", "/v1/photos", "/v1/scenes", "/healthz"}
QUESTIONS = [
    pytest.param(method, path, mode, id=f"{method} {path} {mode.value}")
    for method, path in OPERATIONS
    for mode in GenerationMode
    if mode == GenerationMode.POSITIVE or path not in TAKE_NOTHING
]


@pytest.fixture(scope="module")
def schema(service):
    return schemathesis.openapi.from_url(f"{service.address}/openapi.json")


@pytest.mark.parametrize("examples", [15, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "path", "mode"), QUESTIONS)
def test_every_answer_is_as_described(schema, method, path, mode, examples):
    """Ask as the description allows (or forbids), and hold every answer against it."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def ask(case):
        if case.media_type == "image/*":
            case.headers = {**(case.headers or {}), "content-type": "image/png"}
        case.call_and_validate(excluded_checks=NOT_HELD_TO)

    ask()


def test_every_route_is_described(schema):
    described = {result.ok().label for result in schema.get_all_operations()}
    assert described == {" ".join(operation) for operation in OPERATIONS}
