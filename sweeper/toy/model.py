"""The target: a Llama, with the parameter names of its Hugging Face checkpoint."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sweeper.toy.recipe import Shape

Rotary = tuple[Tensor, Tensor]


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.eps).type_as(x)


def rotary(positions: Tensor, shape: Shape) -> Rotary:
    """Cosines and sines, each [T, head_dim], of the rotate-half convention."""
    even = torch.arange(0, shape.head_dim, 2, device=positions.device).float()
    angles = positions.float()[:, None] * shape.rope_theta ** (-even / shape.head_dim)
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, tables: Rotary) -> Tensor:
    """`x` [B, heads, T, head_dim] turned to its positions."""
    cos, sin = (table.to(x.dtype) for table in tables)
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


class Attention(nn.Module):
    def __init__(self, input_width: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(input_width, shape.query_width, bias=False)
        self.k_proj = nn.Linear(input_width, shape.kv_width, bias=False)
        self.v_proj = nn.Linear(input_width, shape.kv_width, bias=False)
        self.o_proj = nn.Linear(shape.query_width, shape.hidden_size, bias=False)

    def heads(self, x: Tensor, tables: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each [B, query_heads, T, head_dim], rotated, key and value repeated."""
        repeats = self.shape.query_heads // self.shape.kv_heads
        q, k, v = (self._split(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        k = rotate(k, tables).repeat_interleave(repeats, 1)
        return rotate(q, tables), k, v.repeat_interleave(repeats, 1)

    def merge(self, mixed: Tensor) -> Tensor:
        return self.o_proj(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def forward(self, x: Tensor, tables: Rotary) -> Tensor:
        q, k, v = self.heads(x, tables)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.shape.head_dim).transpose(1, 2)


class MLP(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape.hidden_size, shape)
        self.mlp = MLP(shape.hidden_size, shape.intermediate_size)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)

    def forward(self, x: Tensor, tables: Rotary) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), tables)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Body(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden_size, shape.norm_eps)


class Target(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        initialise(self, shape.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, T, vocab] of `tokens` [B, T]."""
        return self.with_aux(tokens, ())[0]

    def with_aux(self, tokens: Tensor, layer_ids: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Logits, and the outputs of the layers `layer_ids` side by side, [B, T, ids * hidden].

        Layer -1 is the embedding, as the engine counts on Llama targets.
        """
        tables = rotary(torch.arange(tokens.shape[1], device=tokens.device), self.shape)
        x = self.model.embed_tokens(tokens)
        captured = [x] if -1 in layer_ids else []
        for index, layer in enumerate(self.model.layers):
            x = layer(x, tables)
            if index in layer_ids:
                captured.append(x)
        aux = torch.cat(captured, -1) if captured else x[..., :0]
        return self.lm_head(self.model.norm(x)), aux


def initialise(module: nn.Module, depth: int) -> None:
    """Normal weights by fan-in; what is added to the residual stream is scaled down by depth."""
    for name, weight in module.named_parameters():
        if weight.dim() != 2:
            continue
        small = "embed_tokens" in name or "lm_head" in name
        nn.init.normal_(weight, std=0.02 if small else 1 / math.sqrt(weight.shape[1]))
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.data.mul_(1 / math.sqrt(2 * depth))
