"""Each equation by hand, on the untrained activations (all straight lines) unless said otherwise."""

import pytest
import torch

from tallybox.counter import reference


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def matrix(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


UNTRAINED = reference.Activations.from_weight(torch.ones(8, 16, dtype=torch.float64))
REAL = torch.tensor([[True], [True], [False]])


def assert_equal(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-14, atol=1e-14)


def test_edges_within_an_object_are_removed():
    relevance = matrix((1, 0.5), (0.5, 0.25))
    distance = matrix((0, 0.25), (0.25, 0))
    assert_equal(reference.deduplicated_edges(relevance, distance, UNTRAINED), matrix((0, 0.125), (0.125, 0)))


def test_likeness_is_of_weights_times_that_of_rows():
    attention = column(1, 0.5)
    distance = matrix((0, 0.5), (0.5, 0))
    # Rows of X are (0, 1/4) and (1/4, 0), so each factor is 3/4; the weights differ by 1/2.
    got = reference.proposal_similarity(attention, attention @ attention.mT * distance, UNTRAINED)
    assert_equal(got, matrix((1, 0.5 * 0.75**2), (0.5 * 0.75**2, 1)))


def test_a_masked_proposal_is_alike_to_none_and_has_no_scale():
    similarity = matrix((1, 0.5, 1), (0.5, 1, 1), (1, 1, 1))
    assert_equal(reference.proposal_scale(similarity, REAL), column(1 / 1.5, 1 / 1.5, 0))


def test_self_loops_are_scaled_once_and_edges_at_both_ends():
    got = reference.count_matrix(matrix((0, 0.5), (0.5, 0)), column(1, 0.5), column(0.5, 0.25), UNTRAINED)
    assert_equal(got, matrix((0.5, 0.0625), (0.0625, 0.25 * 0.25)))


def test_count_is_the_root_of_the_number_of_edges():
    assert_equal(reference.count_of_edges(matrix((1, 2), (2, 4)), 10), matrix((3,)))


def test_slope_of_the_count_is_finite_where_nothing_is_counted():
    edges = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    count = reference.count_of_edges(edges, 10)
    count.sum().backward()
    assert count.item() == pytest.approx(1e-10)
    assert edges.grad.item() == pytest.approx(0.5e10)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, [1, 0, 0, 0]), (1, [0, 1, 0, 0]), (1.25, [0, 0.75, 0.25, 0]), (2.5, [0, 0, 0.5, 0.5]), (3, [0, 0, 0, 1])],
)
def test_one_hot_interpolates_between_whole_numbers(count, expected):
    got = reference.count_one_hot(torch.tensor([count], dtype=torch.float64), 3)
    assert got.tolist() == expected


@pytest.mark.parametrize(("count", "slope"), [(0.0, [-1, 1, 0]), (0.5, [-1, 1, 0]), (1.0, [0, -1, 1])])
def test_one_hot_has_the_slope_to_the_right_of_a_whole_number(count, slope):
    c = torch.tensor([count], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: reference.count_one_hot(x, 2), c)
    assert jacobian.squeeze(-1).tolist() == slope


@pytest.mark.parametrize(
    ("attention", "distance", "expected"),
    [
        (column(1, 0), matrix((0, 1), (1, 0)), 1.0),
        (column(0.5, 0.5), matrix((0, 1), (1, 0)), 0.5),
        (column(1, 0.75), matrix((0, 0.5), (0.5, 0)), 0.375 + 0.25),
    ],
    ids=["certain", "undecided weights", "undecided overlap"],
)
def test_confidence_is_the_mean_distance_from_one_half(attention, distance, expected):
    assert_equal(reference.count_confidence(attention, distance, None, UNTRAINED), matrix((expected,)))


def test_confidence_is_of_real_proposals_only():
    attention = column(1, 0.75, 0)
    distance = matrix((0, 0.5, 0), (0.5, 0, 0), (0, 0, 0))
    assert_equal(reference.count_confidence(attention, distance, REAL, UNTRAINED), matrix((0.375 + 0.25,)))


def test_activations_are_used_in_the_roles_that_the_paper_gives_them():
    """Make each activation in turn a step at one half, and see which quantities move."""
    attention = torch.tensor([0.9, 0.8, 0.6], dtype=torch.float64)
    distance = matrix((0, 0.3, 0.9), (0.3, 0, 0.7), (0.9, 0.7, 0))
    plain = reference.count_quantities(attention, distance, torch.ones(8, 4).double(), None, 3)
    moved = {}
    for role in range(8):
        weight = torch.ones(8, 4, dtype=torch.float64)
        weight[role] = torch.tensor([0.0, 1.0, 3.0, 0.0])
        stepped = reference.count_quantities(attention, distance, weight, None, 3)
        moved[role + 1] = {
            name
            for name in ("deduplicated", "similarity", "scale", "count_matrix", "confidence")
            if not torch.allclose(getattr(stepped, name), getattr(plain, name))
        }
    from_rows = {"similarity", "scale", "count_matrix"}
    assert moved == {
        1: {"deduplicated", "count_matrix"},
        2: {"deduplicated", "count_matrix"},
        3: from_rows,
        4: from_rows,
        5: from_rows,
        6: {"confidence"},
        7: {"confidence"},
        8: {"confidence"},
    }
