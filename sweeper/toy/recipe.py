"""Every number that decides what the toy pair becomes."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the target and of its one-layer draft.

    The target is deep and narrow on purpose: on a CPU the cost of a step is the number of operations,
    not their width, so depth is what makes a one-layer draft pay.
    """

    vocab_size: int = 1536
    draft_vocab_size: int = 1024
    hidden_size: int = 128
    layers: int = 8
    query_heads: int = 4
    kv_heads: int = 2  # two, so that --tp-size 2 has one head for each GPU
    head_dim: int = 64  # the GPU kernels for fused rotary embeddings want 64, 128, 256 or 512
    intermediate_size: int = 512
    draft_intermediate_size: int = 768
    aux_layer_ids: tuple[int, int, int] = (2, 4, 6)  # 0-based layers whose OUTPUT the draft reads
    max_positions: int = 4096
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def query_width(self) -> int:
        return self.query_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One optimisation: AdamW with warm-up and cosine decay."""

    steps: int
    batch: int
    peak_lr: float
    weight_decay: float = 0.05
    warmup_share: float = 0.03
    final_share: float = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    seed: int = 0
    shape: Shape = field(default_factory=Shape)
    corpus_mb: float = 40.0
    context_tokens: int = 640
    target: Schedule = field(default_factory=lambda: Schedule(steps=4200, batch=32, peak_lr=3e-3))
    draft: Schedule = field(default_factory=lambda: Schedule(steps=2772, batch=32, peak_lr=2e-3))
    unroll: int = 5  # draft steps trained on the draft's own hidden states
    unroll_decay: float = 0.9
