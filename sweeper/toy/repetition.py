"""Is an output text or a loop? Plain figures over token ids."""

from collections.abc import Sequence

LONGEST_PERIOD = 48
LOOP_ROUNDS = 3


def distinct_share(tokens: Sequence[int], n: int) -> float:
    """Different n-grams over all n-grams; 1 is never the same twice. NaN-free: 1 for short outputs."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def ends_in_loop(tokens: Sequence[int]) -> bool:
    """Whether the output ends with the same piece at least `LOOP_ROUNDS` times in a row.

    A piece of one or two tokens has to fill 12 tokens, so that `...` or a row of dashes is no loop.
    """
    for period in range(1, min(LONGEST_PERIOD, len(tokens) // LOOP_ROUNDS) + 1):
        length = max(LOOP_ROUNDS * period, 12)
        tail = tokens[-length:]
        if len(tail) == length and all(tail[i] == tail[i - period] for i in range(period, length)):
            return True
    return False
