"""Samples on disk."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweeper.core.sample import Sample
from sweeper.errors import StoreError
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


def test_a_text_that_is_no_utf8_makes_a_file_unreadable_and_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "samples.parquet"
    path.write_bytes(samples_to_parquet([sample(1)]))
    table = pq.read_table(path)
    broken = pa.array([b"three \xff words"], pa.binary()).cast(pa.string(), safe=False)
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", broken), path)
    with pytest.raises(StoreError, match="cannot be read"):
        samples_from_parquet(path)


def test_a_bit_that_fell_over_in_the_numbers_is_noticed(tmp_path: Path) -> None:
    """Without the checksums of the pages some flips end in other numbers."""
    whole = samples_to_parquet([sample(1)])
    path = tmp_path / "samples.parquet"
    path.write_bytes(whole)
    pages = pq.ParquetFile(path).metadata.row_group(0)
    first = min(pages.column(number).data_page_offset for number in range(pages.num_columns))
    for place in range(first, first + pages.total_byte_size // 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            read = samples_from_parquet(path)
        except StoreError:
            continue
        assert read == (sample(1),), f"byte {place} of {len(whole)}"
