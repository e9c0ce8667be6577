"""Runs a draft's head over samples and counts agreement with the target's tokens."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from sweeper.doctor.agreement import Agreement, summarise
from sweeper.doctor.manifest import Manifest, read_manifest
from sweeper.doctor.numerics import Head, read_tensor
from sweeper.doctor.samples import Sample
from sweeper.engine.draft_config import target_config
from sweeper.errors import PreflightError


@torch.inference_mode()
def measure(draft: Path, target: Path, samples: Sequence[Sample], *, steps: int, version: str) -> Agreement:
    """Agreement of the draft with the text of `samples` over `steps` draft steps.

    PreflightError when the widths do not fit or no sample is long enough.
    """
    weights = read_manifest(target)
    head = Head(read_manifest(draft), version=version, head=output_head(weights))
    table = head.own_embedding()
    table = embedding(weights) if table is None else table
    chains = [_chains(head, table, sample, steps) for sample in samples]
    # Row t has token t + 1 as its newest: the first verification starts from the first token the target wrote.
    starts = [None if s.generated_from is None else max(s.generated_from - 1, 0) for s in samples]
    agreement = summarise(chains, starts, steps=steps)
    if agreement is None:
        raise PreflightError(f"no sample has more than {steps + 1} tokens; give longer ones")
    return agreement


def _chains(head: Head, table: Tensor, sample: Sample, steps: int) -> list[list[bool]]:
    """[row][step]: the draft's token is the text's; rows that have all their steps inside the text."""
    rows = len(sample.input_ids) - steps - 1
    states = sample.auxiliary(head.config.num_aux).states[: max(rows, 0)]
    expected = (head.config.width_in or 0) * head.config.num_aux
    if states.shape[-1] != expected:
        raise PreflightError(
            f"{sample.name}: the states are {states.shape[-1]} wide, this draft's fc takes {expected}; "
            "dump as many layers as its config names"
        )
    if rows < 1:
        return []
    embeddings = torch.nn.functional.embedding(sample.input_ids, table.float())
    head.reset()
    agreed = [
        head.target_ids(logits.argmax(-1)) == sample.input_ids[2 + step : 2 + step + rows]
        for step, logits in enumerate(head.unroll(states, embeddings, steps))
    ]
    found: list[list[bool]] = torch.stack(agreed, 1).tolist()
    return found


def embedding(target: Manifest) -> Tensor:
    """[vocab, hidden] of the target's tokens."""
    return read_tensor(target.tensors[_named(target, "embed_tokens.weight")])


def output_head(target: Manifest) -> Tensor | None:
    """[vocab, hidden] of the target's head; the embedding where they are tied."""
    name = next((name for name in target.tensors if name.endswith("lm_head.weight")), None)
    if name is not None:
        return read_tensor(target.tensors[name])
    tied = target.config.get("tie_word_embeddings") is True
    return embedding(target) if tied else None


def _named(target: Manifest, ending: str) -> str:
    vocab = target_config(target.config).vocab_size
    names = (n for n, t in target.tensors.items() if n.endswith(ending) and vocab in (None, t.shape[0]))
    name = next(names, None)
    if name is None:
        raise PreflightError(f"{target.path}: no {ending}; the target's own weights are needed here")
    return name
