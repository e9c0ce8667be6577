"""Why a figure is not there: said in words, so that nobody fills the hole with the requested length."""

from collections.abc import Mapping, Sequence

from sweeper.core.sample import Sample

_NO_COUNT = "no usage from the server: the request did not ask for it, or the server does not give it"
_FIRST_CHUNK = "first chunk size unknown: the server counts tokens at the end only"


def missing(samples: Sequence[Sample]) -> Mapping[str, str]:
    """Field of Metrics → why it is None, for what the server did not say."""
    good = [sample for sample in samples if sample.ok]
    if not good:
        return {}
    reasons: dict[str, str] = {}
    if any(sample.output_tokens is None for sample in good):
        reasons |= dict.fromkeys(
            ("output_tokens", "output_tok_per_s", "tpot_ms", "itl_ms", "peak_tok_per_s"), _NO_COUNT
        )
    elif any(sample.chunk_tokens is None for sample in good):
        bound = decode_bound_tok_per_s(good)
        told = f"{_FIRST_CHUNK}; at most {bound:.1f} tok/s in the decode phase" if bound else _FIRST_CHUNK
        reasons |= dict.fromkeys(("tpot_ms", "itl_ms", "peak_tok_per_s"), told)
    return reasons


def decode_bound_tok_per_s(samples: Sequence[Sample]) -> float | None:
    """An upper bound of the decode rate of one request: as if the first chunk had held one token only."""
    tokens = time_ns = 0
    for sample in samples:
        if sample.output_tokens is not None and len(sample.chunk_ns) > 1:
            tokens += sample.output_tokens - 1
            time_ns += sample.chunk_ns[-1] - sample.chunk_ns[0]
    return tokens * 1e9 / time_ns if time_ns else None
