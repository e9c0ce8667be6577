"""Samples of one measurement as one Parquet file, one row a request."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper.core.sample import Sample
from sweeper.errors import StoreError
from sweeper.store.codec import from_plain, to_plain

_MAGIC = b"PAR1"


def samples_to_parquet(samples: Sequence[Sample]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([to_plain(_storable(sample)) for sample in samples], schema=_schema())
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def samples_from_parquet(path: Path) -> tuple[Sample, ...]:
    """Raises StoreError when the file is missing, cut or of other content."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path, page_checksum_verification=True).to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # texts are decoded, not checked, by Arrow
        raise StoreError(f"{path}: cannot be read: {error}") from error
    value: tuple[Sample, ...] = from_plain(tuple[Sample, ...], rows, origin=str(path))
    return value


def is_whole(path: Path) -> bool:
    """Whether the file is there to its end, by the mark that Parquet puts there; its content is not looked at."""
    try:
        with path.open("rb") as file:
            file.seek(-len(_MAGIC), 2)
            return file.read() == _MAGIC
    except OSError:
        return False


def _storable(sample: Sample) -> Sample:
    """A server may stream half a surrogate pair; files hold UTF-8."""
    text = sample.text.encode(errors="replace").decode()
    if sample.error is None:
        return replace(sample, text=text)
    message = sample.error.message.encode(errors="replace").decode()
    return replace(sample, text=text, error=replace(sample.error, message=message))


def _schema() -> Any:
    import pyarrow as pa

    counters = pa.struct(
        [
            ("verify_steps", pa.int64()),
            ("correct_drafts", pa.int64()),
            ("proposed_drafts", pa.int64()),
            ("histogram", pa.list_(pa.int64())),
        ]
    )
    return pa.schema(
        [
            ("index", pa.int64()),
            ("prompt_id", pa.string()),
            ("category", pa.string()),
            ("due_ns", pa.int64()),
            ("send_ns", pa.int64()),
            ("chunk_ns", pa.list_(pa.int64())),
            ("chunk_tokens", pa.list_(pa.int64())),
            ("end_ns", pa.int64()),
            ("input_tokens", pa.int64()),
            ("cached_tokens", pa.int64()),
            ("output_tokens", pa.int64()),
            ("finish_reason", pa.string()),
            ("text", pa.string()),
            ("output_ids", pa.list_(pa.int64())),
            ("spec", counters),
            ("error", pa.struct([("kind", pa.string()), ("message", pa.string()), ("status", pa.int64())])),
            ("turn", pa.int64()),
        ]
    )
