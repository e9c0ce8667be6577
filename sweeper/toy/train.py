"""Makes the toy pair: `python -m sweeper.toy.train --out DIR [--seed 0] [--device cuda|cpu]`.

Writes DIR/target, DIR/draft, DIR/prompts.jsonl and DIR/report.json. The corpus, the tokenizer, the
prompts and the order of the batches follow from the seed; the weights also from the hardware's sums.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from sweeper.toy.chat import END, PAD
from sweeper.toy.corpus import Document, chats, corpus_hash, documents
from sweeper.toy.draft import Draft
from sweeper.toy.export import save_draft, save_target
from sweeper.toy.fit import Windows, fit
from sweeper.toy.learn import chain_agreement, draft_loss, target_loss, unrolled
from sweeper.toy.model import Target
from sweeper.toy.prompts import build_prompts, write_prompts
from sweeper.toy.recipe import Recipe
from sweeper.toy.tokens import save_tokenizer, train_tokenizer

WRONG_LAYER_IDS = (-1, 0, 1)
TOKENIZER_DOCUMENTS = 6000
HELD_OUT_DOCUMENTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The corpus, encoded."""

    tokenizer: Tokenizer
    documents: list[Document]
    windows: Windows
    held_out: Windows
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    target: Target
    draft: Draft
    kept: Tensor  # [draft_vocab] the target id of every draft id, rising


def make_pair(recipe: Recipe, out: Path, device: torch.device) -> dict[str, Any]:
    """Train both models, write the pair to `out` and return the report."""
    began = time.monotonic()
    torch.manual_seed(recipe.seed)
    text = prepare_text(recipe, device)
    _say(began, f"{len(text.documents)} documents, {len(text.windows.tokens) / 1e6:.1f} M tokens")
    target, target_report = train_target(recipe, text, device, began)
    kept = frequent_tokens(text.windows.tokens, recipe.shape.vocab_size, recipe.shape.draft_vocab_size)
    draft, draft_report = train_draft(recipe, text, target, kept, began)
    report = {
        "recipe": asdict(recipe),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "corpus_sha256": text.sha256,
        "corpus_tokens": len(text.windows.tokens),
        "target": target_report,
        "draft": draft_report,
        "seconds": round(time.monotonic() - began, 1),
    }
    write_pair(recipe, out, text, Trained(target=target, draft=draft, kept=kept), report)
    return report


def prepare_text(recipe: Recipe, device: torch.device) -> Text:
    found = list(documents(recipe.seed, int(recipe.corpus_mb * 1e6)))
    tokenizer = train_tokenizer((d.text for d in found[:TOKENIZER_DOCUMENTS]), recipe.shape.vocab_size)
    fresh = chats("validation", recipe.seed)
    held_out = [next(fresh).text for _ in range(HELD_OUT_DOCUMENTS)]
    length = recipe.context_tokens + 1
    texts = [document.text for document in found]
    return Text(
        tokenizer=tokenizer,
        documents=found,
        windows=Windows.over(_encoded(tokenizer, texts), length, device),
        held_out=Windows.over(_encoded(tokenizer, held_out), length, device),
        sha256=corpus_hash(texts),
    )


def train_target(recipe: Recipe, text: Text, device: torch.device, began: float) -> tuple[Target, dict[str, Any]]:
    target = Target(recipe.shape).to(device)
    last = fit(
        lambda batch: target_loss(target, batch),
        target,
        text.windows,
        recipe.target,
        recipe.seed + 1,
        _reporter(began, "target"),
    )
    for weight in target.parameters():  # the draft has to learn from what the engine will serve
        weight.data = weight.data.to(torch.bfloat16).float()
        weight.requires_grad_(False)
    with torch.no_grad():
        held_out = float(target_loss(target, text.held_out.cut(text.held_out.sample((32,), recipe.seed))))
    return target, {"parameters": _count(target), "last_loss": last, "held_out_loss": held_out}


def train_draft(recipe: Recipe, text: Text, target: Target, kept: Tensor, began: float) -> tuple[Draft, dict[str, Any]]:
    shape = recipe.shape
    draft = Draft(shape).to(kept.device)
    known = torch.zeros(shape.vocab_size, dtype=torch.bool, device=kept.device)
    known[kept] = True

    def loss_of(batch: Tensor) -> Tensor:
        steps = unrolled(target, draft, batch, kept, recipe.unroll, shape.aux_layer_ids)
        return draft_loss(steps, known, recipe.unroll_decay)

    last = fit(loss_of, draft, text.windows, recipe.draft, recipe.seed + 2, _reporter(began, "draft"))
    batch = text.held_out.cut(text.held_out.sample((32,), recipe.seed))
    with torch.no_grad():
        right = chain_agreement(unrolled(target, draft, batch, kept, recipe.unroll, shape.aux_layer_ids), kept)
        wrong = chain_agreement(unrolled(target, draft, batch, kept, recipe.unroll, WRONG_LAYER_IDS), kept)
    return draft, {
        "parameters": _count(draft),
        "last_loss": last,
        "held_out_chain": [round(share, 4) for share in right],
        "held_out_chain_with_wrong_layers": [round(share, 4) for share in wrong],
    }


def frequent_tokens(tokens: Tensor, vocab_size: int, count: int) -> Tensor:
    """The `count` most frequent target ids, rising."""
    frequency = torch.bincount(tokens, minlength=vocab_size)
    return torch.sort(torch.topk(frequency, count).indices).values


def write_pair(recipe: Recipe, out: Path, text: Text, trained: Trained, report: dict[str, Any]) -> None:
    ids = text.tokenizer.get_vocab()
    save_target(out / "target", trained.target, recipe.shape, ids[END], ids[PAD])
    save_tokenizer(out / "target", text.tokenizer, recipe.shape.max_positions)
    save_draft(out / "draft", trained.draft, recipe.shape, trained.kept, ids[END], ids[PAD])
    write_prompts(out / "prompts.jsonl", build_prompts(recipe.seed, text.documents))
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _encoded(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]


def _count(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def _reporter(began: float, label: str) -> Callable[[int, float], None]:
    return lambda step, loss: _say(began, f"{label} step {step} loss {loss:.3f}")


def _say(began: float, message: str) -> None:
    print(f"[{time.monotonic() - began:6.1f} s] {message}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the toy target and its EAGLE-3 draft.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    report = make_pair(replace(Recipe(), seed=given.seed), given.out, torch.device(given.device))
    print(json.dumps({key: report[key] for key in ("target", "draft", "seconds")}, indent=1))


if __name__ == "__main__":
    main()
