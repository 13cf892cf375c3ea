"""Batches vary and fit their scenario; twins look like batches that are called, and hold something else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strop.examples import Examples
from strop.measure.batches import MOST_BATCHES, MOST_UNSEEN, random_batches, sorted_batches, unseen_twins


def examples(lengths):
    """Examples of these lengths, each with a content of its own."""
    rows = [np.full(length, row, np.float32) for row, length in enumerate(lengths)]
    return Examples([str(row) for row in range(len(rows))], {"x": rows})


def test_batches_vary_and_are_the_seeds_own():
    many = examples(range(1, 101))
    rows = random_batches(many, 1, seed=0)
    assert len(rows) == MOST_BATCHES
    assert len({row for batch in rows for row in batch}) == MOST_BATCHES
    assert rows == random_batches(many, 1, seed=0) != random_batches(many, 1, seed=1)


def test_offline_batches_hold_near_lengths():
    many = examples(np.random.default_rng(0).permutation(np.arange(1, 101)))
    lengths = many.lengths()
    for batch in sorted_batches(many, 10, seed=0):
        assert max(lengths[batch]) - min(lengths[batch]) == 9
    assert {row for batch in sorted_batches(many, 10, seed=0) for row in batch} == set(range(100))


def test_fewer_examples_than_a_batch_come_again_in_it():
    few = examples([1, 2, 3])
    assert [sorted(set(batch)) for batch in random_batches(few, 8, seed=0)] == [[0, 1, 2]]
    assert len(sorted_batches(few, 8, seed=0)[0]) == 8


lengths_of_examples = st.lists(st.integers(1, 6), min_size=1, max_size=80)


@given(lengths_of_examples, st.integers(1, 12), st.sampled_from([random_batches, sorted_batches]))
def test_batches_are_in_order_of_size(lengths, batch_size, scenario):
    many = examples(lengths)
    sizes = [int(many.lengths()[batch].max()) for batch in scenario(many, batch_size, seed=0)]
    assert sizes == sorted(sizes)


@given(lengths_of_examples, st.integers(1, 12), st.sampled_from([random_batches, sorted_batches]))
def test_twins_have_the_shape_of_their_partner_and_other_content(lengths, batch_size, scenario):
    many = examples(lengths)
    batches = scenario(many, batch_size, seed=0)
    pairs, twins = unseen_twins(batches, many)
    assert [twin for _, twin in pairs] == list(range(len(batches), len(batches) + len(twins)))
    assert len(pairs) == len({at for at, _ in pairs}) <= MOST_UNSEEN
    contents = [many.batch(rows)["x"].tobytes() for rows in batches + twins]
    shapes = [many.batch(rows)["x"].shape for rows in batches + twins]
    for at, twin in pairs:
        assert shapes[twin] == shapes[at]
        assert contents[twin] != contents[at]
    if batch_size == 1:
        rotating = {row for rows in batches for row in rows}
        assert rotating.isdisjoint(row for rows in twins for row in rows)
        assert len({row for rows in twins for row in rows}) == len(twins)


def test_there_is_no_twin_where_nothing_is_of_the_kind():
    assert unseen_twins([[0], [1]], examples([3, 3])) == ([], [])  # all examples are called
    assert unseen_twins([[0]], examples([3, 4])) == ([], [])  # the other one is longer
    assert unseen_twins([[0, 0]], examples([3])) == ([], [])  # the other order is the same batch


def test_single_rows_have_another_example_as_twin_and_batches_their_own_in_another_order():
    assert unseen_twins([[0]], examples([3, 4, 3])) == ([(0, 1)], [[2]])
    assert unseen_twins([[0, 1, 2]], examples([3, 4, 3])) == ([(0, 1)], [[1, 2, 0]])


def test_no_twin_is_a_batch_that_is_called():
    """Two rows that come in both orders are each other's turned form, and seen."""
    few = examples([3, 3])
    batches = [[0, 1], [1, 0]]
    _, twins = unseen_twins(batches, few)
    assert all(twin not in batches for twin in twins)
