"""Samples by hand: times in milliseconds, tokens per chunk."""

from sweeper.core.sample import ErrorKind, RequestError, Sample, SpecCounters

MS = 1_000_000


def sample(
    *chunks: tuple[float, int],
    index: int = 0,
    send: float = 0.0,
    category: str = "code",
    text: str = "some words",
    ids: tuple[int, ...] | None = None,
    spec: SpecCounters | None = None,
    counted: bool = True,
    tokens: int | None = -1,
    inputs: tuple[int, int] = (10, 0),
    error: ErrorKind | None = None,
) -> Sample:
    """`chunks`: (milliseconds after the start of the load, tokens). tokens −1: the sum of the chunks."""
    total = sum(count for _, count in chunks) if tokens == -1 else tokens
    times = tuple(int(at * MS) for at, _ in chunks)
    return Sample(
        index=index,
        prompt_id=f"p{index}",
        category=category,
        due_ns=int(send * MS),
        send_ns=int(send * MS),
        chunk_ns=times,
        chunk_tokens=tuple(count for _, count in chunks) if counted else None,
        end_ns=times[-1] if times else int(send * MS),
        input_tokens=inputs[0],
        cached_tokens=inputs[1],
        output_tokens=total,
        finish_reason=None if error else "length",
        text=text,
        output_ids=ids,
        spec=spec,
        error=RequestError(kind=error, message="scripted") if error else None,
    )


def counters(steps: int, correct: int | None, proposed: int | None = None, *histogram: int) -> SpecCounters:
    return SpecCounters(
        verify_steps=steps, correct_drafts=correct, proposed_drafts=proposed, histogram=histogram or None
    )
