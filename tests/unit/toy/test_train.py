"""The whole recipe in miniature: what it writes is a pair, and the same twice."""

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from sweeper.toy.fit import Windows, learning_rate  # noqa: E402
from sweeper.toy.recipe import Recipe, Schedule, Shape  # noqa: E402
from sweeper.toy.train import frequent_tokens, make_pair  # noqa: E402

SMALL = Recipe(
    shape=replace(
        Shape(),
        hidden_size=32,
        layers=4,
        vocab_size=320,
        draft_vocab_size=256,
        intermediate_size=32,
        draft_intermediate_size=32,
        aux_layer_ids=(0, 1, 2),
    ),
    corpus_mb=0.1,
    context_tokens=24,
    target=Schedule(steps=3, batch=2, peak_lr=1e-3),
    draft=Schedule(steps=3, batch=2, peak_lr=1e-3),
    unroll=2,
)


def test_the_recipe_writes_the_same_pair_twice(tmp_path: Path) -> None:
    reports = [make_pair(SMALL, tmp_path / name, torch.device("cpu")) for name in ("a", "b")]
    assert reports[0]["corpus_sha256"] == reports[1]["corpus_sha256"]
    written = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len(written) == 9
    for path in written:
        if path.name != "report.json":  # it says how long it took
            assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes(), path


def test_the_learning_rate_rises_then_falls_to_its_last_share() -> None:
    schedule = Schedule(steps=100, batch=1, peak_lr=1.0, warmup_share=0.1, final_share=0.05)
    assert learning_rate(0.05, schedule) == pytest.approx(0.5)
    assert learning_rate(0.1, schedule) == pytest.approx(1.0)
    assert learning_rate(1.0, schedule) == pytest.approx(0.05)


def test_windows_start_where_documents_start_and_never_run_over_the_end() -> None:
    windows = Windows.over([[1, 2, 3], [4, 5], [6, 7]], 4, torch.device("cpu"))
    assert windows.cut(torch.arange(len(windows.starts))).tolist() == [[1, 2, 3, 4], [4, 5, 6, 7]]


def test_the_draft_vocabulary_is_the_most_frequent_tokens_in_order_of_id() -> None:
    assert frequent_tokens(torch.tensor([5, 5, 5, 1, 3, 3, 0]), 8, 2).tolist() == [3, 5]
