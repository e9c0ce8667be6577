"""The optimisation loop; on a GPU one whole step is one CUDA graph.

Models this small spend their time launching kernels, so that a captured step is several times faster.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sweeper.toy.recipe import Schedule

EAGER_STEPS = 3  # capturing wants the optimiser's state and the libraries' workspaces to exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Training windows: each starts where a document starts and runs on into the next ones."""

    tokens: Tensor  # [N] int64
    starts: Tensor  # [documents] int64, each at least `length` before the end
    length: int

    @classmethod
    def over(cls, encoded: Iterable[list[int]], length: int, device: torch.device) -> "Windows":
        flat: list[int] = []
        starts: list[int] = []
        for ids in encoded:
            starts.append(len(flat))
            flat += ids
        room = [start for start in starts if start + length <= len(flat)]
        return cls(tokens=torch.tensor(flat, device=device), starts=torch.tensor(room, device=device), length=length)

    def cut(self, picks: Tensor) -> Tensor:
        """Windows [B, length] at the documents `picks` [B]."""
        offsets = torch.arange(self.length, device=self.tokens.device)
        return self.tokens[self.starts[picks][:, None] + offsets]

    def sample(self, shape: tuple[int, ...], seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(len(self.starts), shape, generator=generator).to(self.tokens.device)


def learning_rate(share: float, schedule: Schedule) -> float:
    """Linear warm-up, then a cosine to `final_share` of the peak; `share` of the steps is done."""
    if share < schedule.warmup_share:
        return schedule.peak_lr * share / schedule.warmup_share
    done = (share - schedule.warmup_share) / (1 - schedule.warmup_share)
    cosine = 0.5 * (1 + math.cos(math.pi * done))
    return schedule.peak_lr * (schedule.final_share + (1 - schedule.final_share) * cosine)


class Step:
    """One update of `parameters` on the batch in `batch`, whose loss stays in `loss`."""

    def __init__(
        self, loss_of: Callable[[Tensor], Tensor], parameters: list[nn.Parameter], batch: Tensor, schedule: Schedule
    ) -> None:
        self.loss_of, self.parameters, self.batch = loss_of, parameters, batch
        self.on_gpu = batch.device.type == "cuda"
        self.rate = torch.tensor(0.0, device=batch.device)
        self.loss = torch.tensor(math.nan)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.optimiser = torch.optim.AdamW(
            parameters,
            lr=self.rate if self.on_gpu else 0.0,
            betas=(0.9, 0.95),
            weight_decay=schedule.weight_decay,
            fused=self.on_gpu,
            capturable=self.on_gpu,
        )

    def run(self, rate: float) -> None:
        self._set_rate(rate)
        if self.graph is not None:
            self.graph.replay()
            return
        self._eager()

    def capture(self) -> None:
        """From here on every step is a replay; nothing is computed while capturing."""
        torch.cuda.synchronize()
        self.optimiser.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._update()
        self.graph = graph

    def _eager(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        if not self.on_gpu:
            self._update()
            return
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._update()
        torch.cuda.current_stream().wait_stream(side)

    def _update(self) -> None:
        with torch.autocast(self.batch.device.type, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False):
            loss = self.loss_of(self.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimiser.step()
        self.loss = loss.detach()

    def _set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            if self.on_gpu:
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def fit(
    loss_of: Callable[[Tensor], Tensor],
    module: nn.Module,
    windows: Windows,
    schedule: Schedule,
    seed: int,
    report: Callable[[int, float], None],
) -> float:
    """Train `module` in place and return its last loss."""
    picks = windows.sample((schedule.steps, schedule.batch), seed)
    step = Step(loss_of, list(module.parameters()), windows.cut(picks[0]), schedule)
    for index in range(schedule.steps):
        if step.on_gpu and index == EAGER_STEPS:
            step.capture()
        step.batch.copy_(windows.cut(picks[index]))
        step.run(learning_rate(index / schedule.steps, schedule))
        if index % 200 == 0:
            report(index, float(step.loss))
    return float(step.loss)
