"""Built-in prompt suites: written for Sweeper, generated from a seed, free of any licence, each with a natural end."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sweeper.core.sample import Prompt
from sweeper.effects import suite_tasks as tasks

Make = Callable[[random.Random], tasks.Task]

CATEGORIES: Mapping[str, Make] = {
    "code": tasks.code_completion,
    "edit": tasks.code_edit,
    "json": tasks.json_extraction,
    "math": tasks.word_problem,
    "summary": tasks.summary,
    "translation": tasks.translation_table,
    "writing": tasks.open_writing,
    "tools": tasks.tool_call,
    "multiturn": tasks.multi_turn,
    "long-1k": lambda draw: tasks.long_context(draw, words=750),
    "long-4k": lambda draw: tasks.long_context(draw, words=3000),
    "long-16k": lambda draw: tasks.long_context(draw, words=12000),
}
"""Category → one task. Words of the long ones are about three quarters of the tokens they name."""

TIERS: Mapping[str, Sequence[str]] = {
    "low-entropy": ("edit", "json", "tools"),
    "medium-entropy": ("code", "math", "translation", "summary"),
    "high-entropy": ("writing", "multiturn"),
}
"""How much the answer is a matter of choice: copied from the prompt, derived from it, or free."""

SUITES: Mapping[str, Sequence[str]] = {
    **{name: (name,) for name in CATEGORIES},
    **TIERS,
    "mixed": tuple(name for names in TIERS.values() for name in names),
}
"""Suite → its categories, taken in turn."""

_MAX_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seeded:
    suite: str
    seed: int

    def draw(self, category: str, number: int, attempt: int) -> random.Random:
        """A generator of its own for every prompt: a longer run keeps the prompts of a shorter one."""
        return random.Random(f"{self.seed}/{category}/{number}/{attempt}")  # noqa: S311


def build_suite(name: str, count: int, *, seed: int) -> list[Prompt]:
    """`count` distinct prompts of a suite; the same for the same seed, and the first n of a larger count."""
    categories = SUITES[name]
    seeded = _Seeded(suite=name, seed=seed)
    seen: set[str] = set()
    prompts = []
    for number in range(count):
        category = categories[number % len(categories)]
        prompts.append(_distinct(seeded, category, number // len(categories), seen))
    return prompts


def _distinct(seeded: _Seeded, category: str, number: int, seen: set[str]) -> Prompt:
    for attempt in range(_MAX_TRIES):
        task = CATEGORIES[category](seeded.draw(category, number, attempt))
        key = task.messages[-1][1]
        if key not in seen:
            break
    seen.add(key)
    return Prompt(
        prompt_id=f"{category}-{number:04d}",
        category=category,
        text="\n\n".join(content for _, content in task.messages),
        messages=task.messages,
        answer=task.answer,
        follow_ups=task.follow_ups,
    )
