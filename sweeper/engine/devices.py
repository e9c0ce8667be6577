"""From physical GPU ids to what a server's process gets to see. The only place where the two numberings meet."""

from collections.abc import Callable, Mapping, Sequence

from sweeper.errors import PreflightError


def visible_devices(
    wanted: Sequence[int], *, given: str | None, needed: int, uuids: Mapping[int, str] | None = None
) -> str:
    """CUDA_VISIBLE_DEVICES for a server on the physical GPUs `wanted`; inside it they are numbered from 0.

    `given`: the variable of the process that launches (None: unset, so every GPU of the node is its own; empty: it was
    given none). `needed`: GPUs the server's parallel sizes ask for. `uuids`: physical id to UUID, for a variable that
    names GPUs by UUID. Raises PreflightError when the wish lies outside of what this process was given.
    """
    if len(set(wanted)) != len(wanted):
        raise PreflightError(f"GPU {_names(wanted)}: the same GPU twice")
    if needed != len(wanted):
        raise PreflightError(f"the server needs {needed} GPU(s) (its parallel sizes), {len(wanted)} given")
    if given is None or not wanted:
        return _names(wanted)
    if not given.strip():
        raise PreflightError(
            "this task owns no GPU (CUDA_VISIBLE_DEVICES is empty): "
            "request num_gpus or set RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1"
        )
    allowed = [_physical(word.strip(), uuids or {}) for word in given.split(",") if word.strip()]
    outside = [gpu for gpu in wanted if gpu not in allowed]
    if outside:
        raise PreflightError(
            f"GPU {_names(outside)} lies outside of what this job was given (CUDA_VISIBLE_DEVICES={given}); "
            "choose among those, the variable is not overridden"
        )
    return _names(wanted)


def physical_ids(words: Sequence[str], uuids: Callable[[], Mapping[int, str]]) -> tuple[int, ...]:
    """In order, of GPUs by number or UUID, as CUDA_VISIBLE_DEVICES and Ray name them; `uuids` is asked where needed."""
    known = {} if all(word.isdecimal() for word in words) else uuids()
    return tuple(sorted(_physical(word, known) for word in words))


def _physical(word: str, uuids: Mapping[int, str]) -> int:
    if word.removeprefix("-").isdecimal():
        return int(word)
    matches = [gpu for gpu, uuid in uuids.items() if uuid.startswith(word)]
    if len(matches) != 1:
        raise PreflightError(f"CUDA_VISIBLE_DEVICES names {word}, which is no GPU of this node")
    return matches[0]


def _names(gpus: Sequence[int]) -> str:
    return ",".join(str(gpu) for gpu in gpus)
