"""What counts as a loop."""

from sweeper.toy.repetition import distinct_share, ends_in_loop


def test_distinct_share_counts_n_grams() -> None:
    assert distinct_share([1, 2, 1, 2], 1) == 0.5
    assert distinct_share([1, 2, 1, 2], 2) == 2 / 3
    assert distinct_share([1], 2) == 1.0


def test_a_piece_three_times_at_the_end_is_a_loop() -> None:
    assert ends_in_loop([9, 8, 7, *[1, 2, 3, 4, 5] * 3])
    assert ends_in_loop([9, *[4] * 12])


def test_a_repetition_that_was_left_again_is_none() -> None:
    assert not ends_in_loop([*[1, 2, 3, 4, 5] * 3, 6, 7])


def test_a_short_row_of_one_token_is_none() -> None:
    assert not ends_in_loop([1, 2, 3, 4, 4, 4, 4])


def test_rows_that_count_are_none() -> None:
    assert not ends_in_loop([token for n in range(10) for token in (1, 2, n + 50, 3)])
