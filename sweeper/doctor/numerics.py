"""An EAGLE-3 head in torch, as SGLang computes it: Llama class and MLA class. The only numeric part of the doctor.

Row t of the first step holds the target's states at position t and the embedding of token t + 1, and predicts token
t + 2. Step i of row t then feeds the head's own state and token t + 1 + i. As in the engine, a row attends to the
first-step rows up to itself, and after them only to its own earlier steps.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from sweeper.doctor.manifest import Manifest
from sweeper.doctor.manifest import Tensor as Entry
from sweeper.doctor.rotary import Rotary
from sweeper.engine.checkpoints import draft_class, load
from sweeper.engine.config_defaults import with_defaults
from sweeper.engine.draft_config import DraftConfig, draft_config
from sweeper.errors import PreflightError

_DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "BOOL": torch.bool,
}
Weights = Mapping[str, Tensor]


def read_tensor(entry: Entry, rows: slice | None = None) -> Tensor:
    """One tensor of a checkpoint; with `rows`, only those of its first dimension are read."""
    dtype = _DTYPES.get(entry.dtype)
    if dtype is None:
        raise PreflightError(
            f"{entry.file}: {entry.name} is {entry.dtype}; only plain float tensors can be computed with"
        )
    per_row = (entry.end - entry.begin) // max(entry.shape[0], 1) if entry.shape else entry.end - entry.begin
    first, last, _ = (rows or slice(None)).indices(entry.shape[0] if entry.shape else 1)
    with Path(entry.file).open("rb") as file:
        file.seek(entry.begin + first * per_row)
        raw = bytearray(file.read((last - first) * per_row))
    shape = (last - first, *entry.shape[1:]) if entry.shape else ()
    return torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)


class Head:
    """A draft ready to compute. All arithmetic is in float32."""

    def __init__(self, draft: Manifest, *, version: str, head: Tensor | None = None) -> None:
        """`head` [vocab, hidden] is the target's output head, for drafts that borrow it."""
        self.config = draft_config(draft.config)
        kind = draft_class(self.config.architecture)
        if kind not in ("eagle3-llama", "eagle3-mla"):
            raise PreflightError(f"{draft.path}: {self.config.architecture} is not an EAGLE-3 draft class")
        loading = load(draft.tensors, self.config, kind, version)
        if loading.unfilled:
            raise PreflightError(f"{draft.path}: {loading.unfilled[0]} is missing; see `sweeper doctor {draft.path}`")
        placed = {item.parameter: item.name for item in loading.placements if item.parameter is not None}
        self._weights = {name: read_tensor(draft.tensors[tensor]).float() for name, tensor in placed.items()}
        self._eps = float(draft.config.get("rms_norm_eps", 1e-6))
        self.vocabulary = _vocabulary(draft)
        self._head = self._output_head(head)
        self._layers = [self._layer(index, draft) for index in range(self.config.num_hidden_layers or 1)]

    def unroll(self, states: Tensor, embeddings: Tensor, steps: int) -> Iterator[Tensor]:
        """Logits [rows, draft vocabulary] of each of `steps` steps.

        `states` [rows, aux * hidden] are the target's, side by side; `embeddings` [rows + steps, hidden] are those of
        the tokens from position 0 on.
        """
        rows = states.shape[0]
        hidden = self._fuse(states.float())
        for step in range(steps):
            tokens = embeddings[1 + step : 1 + step + rows].float()
            positions = torch.arange(rows) + step
            for layer in self._layers:
                hidden = layer(hidden, tokens, positions)
            normed = self._norm(hidden, "norm.weight")
            yield normed @ self._head.T
            hidden = normed if self.config.norm_output else hidden

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """The target's ids of the draft's."""
        return draft_ids if self.vocabulary is None else self.vocabulary[draft_ids]

    def reset(self) -> None:
        """Forget the rows of the sequence before."""
        for layer in self._layers:
            layer.reset()

    def own_embedding(self) -> Tensor | None:
        """[vocab, hidden] where the target's cannot be shared."""
        return self._weights["embed_tokens.weight"] if self.config.own_embedding else None

    def _fuse(self, states: Tensor) -> Tensor:
        if "input_norm.weight" in self._weights:
            states = self._norm(states, "input_norm.weight")
        if "fc_norm.0.weight" in self._weights:
            parts = states.chunk(self.config.num_aux, -1)
            states = torch.cat([self._norm(part, f"fc_norm.{i}.weight") for i, part in enumerate(parts)], -1)
        return F.linear(states, self._weights["fc.weight"], self._weights.get("fc.bias"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self._weights[name], self._eps)

    def _output_head(self, borrowed: Tensor | None) -> Tensor:
        if self.config.tied:
            return self._weights["embed_tokens.weight"]
        if not self.config.borrows_head:
            return self._weights["lm_head.weight"]
        if borrowed is None:
            raise PreflightError("this draft borrows the target's head, which was not found in the target's checkpoint")
        return borrowed.float()

    def _layer(self, index: int, draft: Manifest) -> "Layer":
        prefixes = ("midlayer.", "layers.0.") if index == 0 else (f"layers.{index}.",)
        own = {name.removeprefix(p): w for p in prefixes for name, w in self._weights.items() if name.startswith(p)}
        made = MlaAttention if "self_attn.kv_b_proj.weight" in own else GroupedAttention
        attention = made(own, self.config, Rotary.of(with_defaults(draft.config)), self._eps)
        return Layer(own, attention, eps=self._eps, first=index == 0)


class Attention:
    """Keys and values of the first-step rows, and of each row's own later steps."""

    scale: float

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def heads(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key, value [heads, rows, width]."""
        raise NotImplementedError

    def attend(self, x: Tensor, positions: Tensor) -> Tensor:
        """[rows, heads * width]; the first call since `reset` is the first step."""
        q, k, v = self.heads(x, positions)
        self._keys.append(k)
        self._values.append(v)
        rows = q.shape[1]
        future = torch.ones(rows, rows, dtype=torch.bool).triu(1)
        scores = (q @ self._keys[0].transpose(-1, -2) * self.scale).masked_fill(future, -math.inf)
        own = [(q * key).sum(-1, keepdim=True) * self.scale for key in self._keys[1:]]
        weights = torch.cat([scores, *own], -1).softmax(-1)
        mixed = weights[..., :rows] @ self._values[0]
        for step, value in enumerate(self._values[1:]):
            mixed = mixed + weights[..., rows + step, None] * value
        return mixed.transpose(0, 1).flatten(1)

    def reset(self) -> None:
        self._keys.clear()
        self._values.clear()


class GroupedAttention(Attention):
    """Llama's attention."""

    def __init__(self, weights: Weights, config: DraftConfig, rotary: Rotary, eps: float) -> None:
        super().__init__()
        assert config.head_dim is not None
        self._weights, self._rotary, self._width = weights, rotary, config.head_dim
        self.scale = config.head_dim**-0.5

    def heads(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (_heads(x @ self._weights[f"self_attn.{name}_proj.weight"].T, self._width) for name in "qkv")
        repeats = q.shape[0] // k.shape[0]
        k = self._rotary.turn_share(k, positions).repeat_interleave(repeats, 0)
        return self._rotary.turn_share(q, positions), k, v.repeat_interleave(repeats, 0)


class MlaAttention(Attention):
    """DeepSeek's latent attention, expanded."""

    def __init__(self, weights: Weights, config: DraftConfig, rotary: Rotary, eps: float) -> None:
        super().__init__()
        self._weights, self._rotary, self._eps = weights, rotary, eps
        self._nope, self._turned = config.mla["qk_nope_head_dim"], config.mla["qk_rope_head_dim"]
        self._value, self._latent = config.mla["v_head_dim"], config.mla["kv_lora_rank"]
        self.scale = (self._nope + self._turned) ** -0.5 * rotary.attention_factor**2

    def heads(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries = self._normed(x @ self._part("q_a_proj"), "q_a_layernorm") @ self._part("q_b_proj")
        q = _heads(queries, self._nope + self._turned)
        down = x @ self._part("kv_a_proj_with_mqa")
        latent, key = down[:, : self._latent], down[:, self._latent :]
        pairs = _heads(self._normed(latent, "kv_a_layernorm") @ self._part("kv_b_proj"), self._nope + self._value)
        kept, value = pairs[..., : self._nope], pairs[..., self._nope :]
        tables = self._rotary.tables(positions, self._turned)
        turned = self._rotary.turn_latent(key[None], tables).expand(kept.shape[0], -1, -1)
        rotated = self._rotary.turn_latent(q[..., self._nope :], tables)
        return torch.cat([q[..., : self._nope], rotated], -1), torch.cat([kept, turned], -1), value

    def _part(self, name: str) -> Tensor:
        return self._weights[f"self_attn.{name}.weight"].T

    def _normed(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self._weights[f"self_attn.{name}.weight"], self._eps)


class Layer:
    """One decoder layer; the first takes embedding and state side by side."""

    def __init__(self, weights: Weights, attention: Attention, *, eps: float, first: bool) -> None:
        self._weights, self._attention, self._eps, self._first = weights, attention, eps, first

    def __call__(self, hidden: Tensor, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self._norm(hidden, "hidden_norm")
        if self._first:
            x = torch.cat([self._norm(tokens, "input_layernorm"), x], -1)
        mixed = self._attention.attend(x, positions)
        hidden = hidden + F.linear(
            mixed, self._weights["self_attn.o_proj.weight"], self._weights.get("self_attn.o_proj.bias")
        )
        inner = self._norm(hidden, "post_attention_layernorm")
        gate, up = (inner @ self._weights[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return hidden + (F.silu(gate) * up) @ self._weights["mlp.down_proj.weight"].T

    def reset(self) -> None:
        self._attention.reset()

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self._weights[f"{name}.weight"], self._eps)


def _heads(x: Tensor, width: int) -> Tensor:
    """[rows, heads * width] as [heads, rows, width]."""
    return x.reshape(x.shape[0], -1, width).transpose(0, 1)


def _vocabulary(draft: Manifest) -> Tensor | None:
    """Target id of every draft id, by the engine's rule; None: the ids are the same."""
    entry = draft.named("d2t")
    return None if entry is None else read_tensor(entry) + torch.arange(entry.shape[0])
