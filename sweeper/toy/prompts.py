"""The built-in prompts: from the training text (`seen`) and from other seeds and modules (`heldout`)."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sweeper.toy.chat import Message, render
from sweeper.toy.corpus import CATEGORIES, Document, chats, held_out_pieces

Split = Literal["seen", "heldout"]
SEEN_PER_CATEGORY = 4
HELD_OUT_PER_CATEGORY = 10
LONGEST_PROMPT_CHARS = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    id: str
    category: str
    split: Split
    text: str  # what the model reads; of a chat the rendered messages
    messages: tuple[Message, ...] = ()  # empty for a plain completion

    def to_json(self) -> str:
        fields: dict[str, object] = {
            "id": self.id,
            "category": self.category,
            "split": self.split,
            "text": self.text,
        }
        if self.messages:
            fields["messages"] = [{"role": m.role, "content": m.content} for m in self.messages]
        return json.dumps(fields)


def build_prompts(seed: int, trained: Sequence[Document]) -> list[Prompt]:
    """Prompts of all categories, `seen` first; no held-out one was cut from a trained document."""
    known = {document.text for document in trained}
    fresh = (document for document in chats("heldout", seed) if document.text not in known)
    seen = _pick(trained, "seen", SEEN_PER_CATEGORY)
    return seen + _pick(itertools.chain(held_out_pieces(), fresh), "heldout", HELD_OUT_PER_CATEGORY)


def write_prompts(path: Path, prompts: list[Prompt]) -> None:
    path.write_text("".join(prompt.to_json() + "\n" for prompt in prompts), encoding="utf-8")


def _pick(found: Iterable[Document], split: Split, per_category: int) -> list[Prompt]:
    """The first `per_category` usable documents of each category, as prompts, category by category."""
    picked: dict[str, list[Prompt]] = {category: [] for category in CATEGORIES}
    for document in found:
        have = picked[document.category]
        if len(have) < per_category and len(text := _question(document)) <= LONGEST_PROMPT_CHARS:
            name = f"{document.category}-{split}-{len(have):02d}"
            messages = document.messages[:-1]
            have.append(Prompt(id=name, category=document.category, split=split, text=text, messages=messages))
        if all(len(prompts) == per_category for prompts in picked.values()):
            break
    return list(itertools.chain.from_iterable(picked.values()))


def _question(document: Document) -> str:
    """Everything before the last answer; of a piece of code the first third of its lines."""
    if document.messages:
        return render(document.messages[:-1], generation_prompt=True)
    lines = document.text.splitlines(keepends=True)
    return "".join(lines[: max(3, len(lines) // 3)])
