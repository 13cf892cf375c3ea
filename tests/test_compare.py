"""Agreement is judged by direction, scale and row, for each output alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.compare import compare, floor_between, problem_of

RNG = np.random.default_rng(0)
A = RNG.normal(size=(8, 6)).astype(np.float32)


def problem(a, b, floor=0.99):
    (difference,) = compare({"y": a}, {"y": b})
    return problem_of(difference, floor)


def test_equal_outputs_have_no_problem():
    (same,) = compare({"y": A}, {"y": A.copy()})
    assert (same.cosine, same.max_abs, same.worst_row, same.top1_agreement) == (pytest.approx(1.0), 0, 0, 1)
    assert problem_of(same, 0.9999) is None
    empty = np.zeros((0, 4), np.float32)
    assert problem(empty, empty.copy()) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a[:, :5], "has shape [8, 5], the reference [8, 6]"),
        (lambda a: np.where(np.arange(48).reshape(8, 6) == 7, np.nan, a), "1 values that are not finite"),
        (lambda a: -a, "cosine with the reference's is -1"),
        (lambda a: 2 * a, "differs by 1 of its norm"),
        (lambda a: a[::-1], "cosine"),
    ],
)
def test_wrong_outputs_are_named(change, words):
    assert words in problem(A, change(A))


def test_one_ruined_row_does_not_hide_among_large_ones():
    """An outlier row dominates the vector's norm; the others, all zero now, would pass by cosine alone."""
    a = A.copy()
    a[0] *= 1000
    b = a.copy()
    b[1:] = 0
    (difference,) = compare({"y": a}, {"y": b})
    assert difference.cosine > 0.999
    assert "a row differs by" in problem_of(difference, 0.99)


def test_a_missing_output_is_a_problem_and_a_further_one_is_not():
    missing, fine = compare({"y": A, "z": A}, {"z": A, "extra": A})
    assert problem_of(missing, 0.5) == "output 'y' is missing"
    assert problem_of(fine, 0.5) is None


def test_values_that_are_not_finite_in_the_reference_are_left_out():
    a = A.copy()
    a[0, 0] = -np.inf
    assert problem(a, a.copy()) is None


def test_texts_are_equal_or_not():
    a = np.asarray(["x", "y"])
    assert problem(a, a.copy()) is None
    assert problem(a, np.asarray(["x", "z"])) is not None


@given(st.floats(0.5, 1.0), st.floats(0.5, 1.0), st.integers(0, 2**32 - 1))
def test_what_agrees_with_one_reference_agrees_by_the_floor_between(a, b, seed):
    """Three directions: two at their floors of agreement with the third, on whichever sides of it."""
    rng = np.random.default_rng(seed)
    reference = rng.normal(size=5)
    reference /= np.linalg.norm(reference)

    def at(cosine):
        away = rng.normal(size=5)
        away -= (away @ reference) * reference
        return cosine * reference + np.sqrt(1 - cosine**2) * away / np.linalg.norm(away)

    assert at(a) @ at(b) >= floor_between(a, b) - 1e-9
    assert floor_between(a, b) == floor_between(b, a) <= min(a, b) + 1e-12
    assert floor_between(a, 1.0) == pytest.approx(a)
