"""The report says under "Why" which arms accept little, and what the measurements show as the cause."""

from sweeper.present.document import document
from sweeper.testing.runs import Story, model_run


def labels(acceptance: float) -> list[str]:
    run = model_run(["3-1-4"], concurrency=[4], story=Story(acceptance={"3-1-4": acceptance}))
    return [label for label, _ in document(run).explanations if "accepts little" in label]


def test_an_arm_that_refuses_nearly_every_draft_is_explained() -> None:
    assert labels(0.05) == ["3-1-4 accepts little"]


def test_an_arm_that_accepts_well_is_not() -> None:
    assert labels(0.8) == []
