"""What the two models learn: the losses, and the agreement that decides how long drafts are."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sweeper.toy.draft import Draft
from sweeper.toy.model import Target


def target_loss(target: Target, batch: Tensor) -> Tensor:
    """Mean cross entropy of the next token; `batch` [B, T + 1]."""
    logits = target(batch[:, :-1]).float()
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStep:
    """One unrolled step: what the draft says, and what the target says about the same token."""

    draft_logits: Tensor  # [B, T, draft_vocab]
    target_logits: Tensor  # [B, T, draft_vocab], the target's, restricted to the draft's vocabulary
    target_choice: Tensor  # [B, T] target ids


def unrolled(
    target: Target,
    draft: Draft,
    batch: Tensor,
    kept: Tensor,
    steps: int,
    layer_ids: tuple[int, ...],
) -> Iterator[DraftStep]:
    """The draft's steps over `batch` [B, T + steps], each next to the target's own prediction."""
    with torch.no_grad():
        logits, aux = target.with_aux(batch, layer_ids)
        embeddings, logits = target.model.embed_tokens(batch), logits.float()
    rows = batch.shape[1] - steps
    for step, said in enumerate(draft.unroll(aux[:, :rows], embeddings, steps)):
        truth = logits[:, 1 + step : 1 + step + rows]
        yield DraftStep(draft_logits=said.float(), target_logits=truth[..., kept], target_choice=truth.argmax(-1))


def draft_loss(steps: Iterator[DraftStep], known: Tensor, decay: float) -> Tensor:
    """Cross entropy against the target's distribution, where its choice is in the draft's vocabulary.

    `known` [vocab] bool; later steps count less, by `decay`.
    """
    total, weight = torch.zeros((), device=known.device), 1.0
    for step in steps:
        valid = known[step.target_choice]
        entropy = -(step.target_logits.softmax(-1) * step.draft_logits.log_softmax(-1)).sum(-1)
        total = total + weight * (entropy * valid).sum() / valid.sum()
        weight *= decay
    return total


def chain_agreement(steps: Iterator[DraftStep], kept: Tensor) -> list[float]:
    """Share of rows where the first 1, 2, ... greedy draft tokens are all the target's choice."""
    shares: list[float] = []
    chain: Tensor | None = None
    for step in steps:
        right = kept[step.draft_logits.argmax(-1)] == step.target_choice
        chain = right if chain is None else chain & right
        shares.append(float(chain.float().mean()))
    return shares
