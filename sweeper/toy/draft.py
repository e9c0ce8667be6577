"""The EAGLE-3 draft: one decoder layer over the target's captured hidden states."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from sweeper.toy.model import MLP, Attention, RMSNorm, initialise, rotary
from sweeper.toy.recipe import Shape


class DraftLayer(nn.Module):
    """Attends over [token embedding, hidden state], both normed: the input is twice the width."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, eps = shape.hidden_size, shape.norm_eps
        self.self_attn = Attention(2 * width, shape)
        self.mlp = MLP(width, shape.draft_intermediate_size)
        self.input_layernorm = RMSNorm(width, eps)
        self.hidden_norm = RMSNorm(width, eps)
        self.post_attention_layernorm = RMSNorm(width, eps)


class Draft(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(3 * shape.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = DraftLayer(shape)
        self.norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, shape.draft_vocab_size, bias=False)
        initialise(self, 1)

    def unroll(self, aux: Tensor, embeddings: Tensor, steps: int) -> Iterator[Tensor]:
        """Draft logits [B, T, draft_vocab] of each of `steps` consecutive draft steps.

        `aux` [B, T, 3 * hidden] are the target's states at positions 0..T-1; `embeddings`
        [B, >= T + steps, hidden] those of the tokens from position 0 on. At step i, row t has seen
        the tokens up to t + 1 + i and predicts token t + 2 + i. As while decoding, it attends to the
        first-step rows up to t, and after them only to its own earlier steps.
        """
        rows, layer = aux.shape[1], self.midlayer
        future = torch.ones(rows, rows, dtype=torch.bool, device=aux.device).triu(1)
        hidden, keys, values = self.fc(aux), [], []
        for step in range(steps):
            tokens = embeddings[:, 1 + step : 1 + step + rows].to(hidden.dtype)
            both = torch.cat([layer.input_layernorm(tokens), layer.hidden_norm(hidden)], -1)
            positions = torch.arange(rows, device=aux.device) + step
            q, k, v = layer.self_attn.heads(both, rotary(positions, self.shape))
            keys.append(k)
            values.append(v)
            hidden = hidden + layer.self_attn.merge(_attend(q, keys, values, future))
            # The engine hands the state before the last norm to the next step.
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            yield self.lm_head(self.norm(hidden))


def _attend(q: Tensor, keys: list[Tensor], values: list[Tensor], future: Tensor) -> Tensor:
    """Attention over the rows of the first step (causal) and, row by row, over the later ones."""
    rows, scale = q.shape[-2], 1 / math.sqrt(q.shape[-1])
    scores = (q @ keys[0].transpose(-1, -2)).float().mul(scale).masked_fill(future, float("-inf"))
    own = [(q * key).sum(-1, keepdim=True).float() * scale for key in keys[1:]]
    weights = torch.cat([scores, *own], -1).softmax(-1).to(q.dtype)
    mixed = weights[..., :rows] @ values[0]
    for step, value in enumerate(values[1:]):
        mixed = mixed + weights[..., rows + step, None] * value
    return mixed
