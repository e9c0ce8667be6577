"""Samples on disk."""

from pathlib import Path

import pyarrow.parquet as pq

from sweeper.core.sample import Sample
from sweeper.store.samples import samples_from_parquet, samples_to_parquet


def sample(turn: int) -> Sample:
    return Sample(
        index=turn - 1,
        prompt_id="talk-1",
        category="talk",
        due_ns=0,
        send_ns=0,
        chunk_ns=(5, 9),
        chunk_tokens=(1, 2),
        end_ns=9,
        input_tokens=7,
        cached_tokens=None,
        output_tokens=3,
        finish_reason="stop",
        text="three little words",
        output_ids=None,
        spec=None,
        turn=turn,
    )


def test_a_request_keeps_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    path.write_bytes(samples_to_parquet([sample(1), sample(2)]))
    assert samples_from_parquet(path) == (sample(1), sample(2))


def test_a_file_from_before_conversations_holds_first_turns(tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    path.write_bytes(samples_to_parquet([sample(2)]))
    pq.write_table(pq.read_table(path).drop_columns(["turn"]), path)
    assert [one.turn for one in samples_from_parquet(path)] == [1]
