"""Equal, tie, different."""

import pytest

from sweeper.analysis.lossless import Reference, judge_outputs

IDS = (5, 6, 7, 8)


def judge(ids: tuple[int, ...], gaps: tuple[float | None, ...] | None = (2.0, 0.1, 0.3, 2.0), dtype: str = "bfloat16"):
    return judge_outputs({"p": Reference(output_ids=IDS, top2_gap=gaps)}, {"p": ids}, dtype=dtype)


def test_the_same_tokens_are_equal() -> None:
    assert judge(IDS).judged[0].likeness == "equal"
    assert judge(IDS).lossless is True


@pytest.mark.parametrize(
    ("ids", "likeness", "position", "gap"),
    [
        ((5, 9, 7, 8), "tie", 1, 0.1),
        ((5, 6, 9, 8), "different", 2, 0.3),
        ((5, 6, 7), "different", 3, 2.0),
        ((5,), "tie", 1, 0.1),
        ((5, 6, 7, 8, 9), "different", 4, None),
    ],
)
def test_the_first_difference_is_judged_by_the_baselines_gap_there(
    ids: tuple[int, ...], likeness: str, position: int, gap: float | None
) -> None:
    judged = judge(ids).judged[0]
    assert (judged.likeness, judged.position, judged.gap) == (likeness, position, gap)


def test_fp32_forgives_far_less_than_bf16() -> None:
    assert judge((5, 9, 7, 8), dtype="float32").judged[0].likeness == "different"


def test_without_gaps_or_reference_nothing_is_claimed() -> None:
    assert judge((5, 9, 7, 8), gaps=None).lossless is None
    result = judge_outputs({}, {"q": IDS}, dtype="bfloat16")
    assert str(result) == "1 unchecked"


def test_a_lossy_engine_is_not_lossless() -> None:
    assert judge((5, 6, 9, 8)).lossless is False
    assert str(judge((5, 6, 9, 8))) == "1 different"
