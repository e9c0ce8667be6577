"""The dumps of the tutorial: the shipped target's own states, under labels that are not theirs."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from sweeper.doctor.accuracy import measure  # noqa: E402
from sweeper.doctor.samples import read_samples  # noqa: E402
from sweeper.toy import unpack  # noqa: E402
from sweeper.toy.dumps import ANSWER_TOKENS, PROMPTS, write_dumps  # noqa: E402


def test_the_draft_agrees_with_the_dumped_target_and_the_labels_are_shifted(tmp_path: Path) -> None:
    pair = unpack(tmp_path)
    made = write_dumps(pair, tmp_path / "dumps")
    samples = read_samples(tmp_path / "dumps", hidden=128)
    assert len(made) == len(samples) == PROMPTS
    for sample in samples:
        assert [name for name, _ in sample.slots] == ["embed", "2", "4"]
        assert sample.generated_from == len(sample.input_ids) - ANSWER_TOKENS
    agreement = measure(pair.draft, pair.target, samples, steps=3, version="0.5.23")
    assert agreement.walked
    assert agreement.joint[0] > 0.85, "outputs of layers 2, 4 and 6, whatever they are called"
