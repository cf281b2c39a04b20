import pytest

from tallybox import TallyboxError
from tallybox.errors import BackendError, InputError, InputTypeError


@pytest.mark.parametrize(
    ("error", "also"),
    [(InputError, ValueError), (InputTypeError, TypeError), (InputTypeError, ValueError), (BackendError, RuntimeError)],
)
def test_each_error_is_ours_and_the_builtin_a_user_expects(error, also):
    assert issubclass(error, TallyboxError)
    assert issubclass(error, also)
