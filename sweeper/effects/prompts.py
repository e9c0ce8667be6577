"""Prompts of a workload: built-in, the toy's, random tokens, or a file; chat template applied, all of it hashed."""

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from sweeper.core.experiment import Workload
from sweeper.core.sample import ChatTemplate, Prompt, PromptSet
from sweeper.effects.prompt_files import read_prompts
from sweeper.effects.suites import SUITES, build_suite
from sweeper.effects.templates import load_template, render, template_name
from sweeper.errors import ConfigError

TOY_PROMPTS = Path(__file__).parent.parent / "data" / "toy" / "prompts.jsonl"
_COMMON_WORDS = (  # noqa: SIM905  a list of a hundred literals reads worse
    "the of and to in is that for it as was with be by on not he at but are from his have an they which "
    "one you were her all she there would their we him been has when who will more no if out so said what "
    "up its about into than them can only other new some could time these two may then do first any my "
    "now such like our over man me even most made after also did many before must through back years "
    "where much your way well down should because each just those people how too little"
).split(" ")
"""Short English words, one token each in nearly every vocabulary."""

MOST_LOOKED_AT = 256
MOST_LOOKED_INTO = 50_000_000
"""Prompts, and bytes of a file of them, that a plan looks at to learn how many turns they have."""
MOST_WORDS = 100_000_000
"""Of all random prompts of a load: half a GB of text."""


def require_source(prompts: str) -> None:
    """Raises ConfigError where `prompts` names no source that `load_prompts` knows; builds none."""
    kind, _, name = prompts.partition(":")
    if kind == "builtin":
        _require_suite(name)
    elif kind == "toy":
        toy_prompts(name)
    elif kind == "random":
        _random_bounds(name)
    elif not Path(prompts).is_file():
        raise ConfigError(
            f"prompts {prompts!r}: no such file; correct the path, or use builtin:NAME, toy:NAME or random:LO:HI"
        )


def load_prompts(workload: Workload, *, tokenizer_dir: Path | None) -> PromptSet:
    """At most `num_prompts` distinct prompts, the same for the same workload, seed and tokenizer.

    Prompts with messages get the tokenizer's chat template (`auto`), raw texts are sent as they are. On the chat
    endpoint the server applies its own template. Raises ConfigError for an unknown source.
    """
    chosen, representative = _source(workload)
    warnings = list(_scarcity(chosen, workload))
    template = load_template(tokenizer_dir) if tokenizer_dir and workload.chat_template == "auto" else None
    if workload.endpoint == "chat":
        prompts, name = chosen, "server"
    else:
        prompts, name = (
            [_rendered(prompt, template, workload) for prompt in chosen],
            template_name(template) if template else "none",
        )
        warnings += _template_warnings(chosen, template) if not workload.prompts.startswith("toy:") else []
    if template is None or all(prompt.messages is None for prompt in chosen):
        name = name if workload.endpoint == "chat" else "none"
    return PromptSet(
        prompts=tuple(prompts),
        source=workload.prompts,
        sha256=_hash(prompts, name),
        template=name,
        representative=representative,
        warnings=tuple(warnings),
        chat_template=template if workload.endpoint != "chat" else None,
    )


def _source(workload: Workload) -> tuple[list[Prompt], bool]:
    kind, _, name = workload.prompts.partition(":")
    if kind == "builtin":
        return _builtin(name, workload), True
    if kind == "toy":
        return pick(toy_prompts(name), workload.num_prompts, seed=workload.seed), True
    if kind == "random":
        return random_prompts(name, workload.num_prompts, seed=workload.seed), False
    require_source(workload.prompts)
    return pick(read_prompts(Path(workload.prompts)), workload.num_prompts, seed=workload.seed), True


def mean_turns(workload: Workload) -> float:
    """Turns of a conversation of this workload, as far as a look at MOST_LOOKED_AT prompts tells; 1 where none can
    be read, which `load_prompts` will say."""
    looked = workload.model_copy(update={"num_prompts": min(workload.num_prompts, MOST_LOOKED_AT)})
    kind, _, _ = workload.prompts.partition(":")
    try:
        if kind in ("toy", "random") or (
            kind != "builtin" and Path(workload.prompts).stat().st_size > MOST_LOOKED_INTO
        ):
            return 1.0
        chosen, _ = _source(looked)
    except (ConfigError, OSError):
        return 1.0
    return sum(1 + len(prompt.follow_ups) for prompt in chosen) / len(chosen)


def _require_suite(name: str) -> None:
    if name not in SUITES:
        raise ConfigError(f"prompts builtin:{name}: unknown; there are {', '.join(f'builtin:{x}' for x in SUITES)}")


def _builtin(name: str, workload: Workload) -> list[Prompt]:
    _require_suite(name)
    return build_suite(name, workload.num_prompts, seed=workload.seed)


def toy_prompts(name: str) -> list[Prompt]:
    """The toy pair's own prompts: `all`, a split (`seen`, `held_out`, …) or a category."""
    if not TOY_PROMPTS.is_file():
        raise ConfigError(f"prompts toy:{name}: {TOY_PROMPTS} is not there; is the package whole?")
    rows = [json.loads(line) for line in TOY_PROMPTS.read_text("utf-8").splitlines() if line.strip()]
    kept = [row for row in rows if name in ("all", row.get("split"), row.get("category"))]
    if not kept:
        names = sorted({str(row.get(key)) for row in rows for key in ("split", "category")})
        raise ConfigError(f"prompts toy:{name}: unknown; there are toy:all, {', '.join(f'toy:{x}' for x in names)}")
    return [_toy_prompt(row) for row in kept]


def _toy_prompt(row: Mapping[str, object]) -> Prompt:
    messages = row.get("messages")
    pairs = tuple((str(m["role"]), str(m["content"])) for m in messages) if isinstance(messages, list) else None
    text = str(row["text"]) if "text" in row else _plain(pairs or ())
    answer = row.get("answer")
    return Prompt(
        prompt_id=str(row["id"]),
        category=str(row.get("category") or "toy"),
        text=text,
        messages=pairs,
        answer=str(answer) if answer is not None else None,
    )


def random_prompts(bounds: str, count: int, *, seed: int) -> list[Prompt]:
    """LO to HI random words, about as many tokens. Never representative for speculation."""
    low, high = _random_bounds(bounds)
    if count * high > MOST_WORDS:
        raise ConfigError(f"prompts random:{bounds}: {count} of them may hold {count * high:.3g} words; ask for less")
    draw = random.Random(seed)  # noqa: S311
    sizes = [draw.randint(low, high) for _ in range(count)]
    texts = [" ".join(draw.choices(_COMMON_WORDS, k=size)) for size in sizes]
    return [Prompt(prompt_id=f"random-{i}", category="random", text=text) for i, text in enumerate(texts)]


def _random_bounds(bounds: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", bounds)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= MOST_WORDS:
        raise ConfigError(f"prompts random:{bounds}: write random:LO:HI, numbers of words with 1 ≤ LO ≤ HI")
    return low, high


def pick(prompts: Sequence[Prompt], count: int, *, seed: int) -> list[Prompt]:
    """`count` of them, the categories in turn, so that a short run covers the file; seeded within each category."""
    by_category: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt)
    draw = random.Random(seed)  # noqa: S311
    columns = [draw.sample(group, len(group)) for _, group in sorted(by_category.items())]
    in_turn = [prompt for row in zip_longest(*columns) for prompt in row if prompt is not None]
    return in_turn[:count]


def next_turn(prompt: Prompt, answer: str, template: ChatTemplate | None, options: Mapping[str, Any]) -> Prompt:
    """The same conversation after the model's answer: with that answer, and with what the user says to it."""
    assert prompt.messages is not None
    messages = (*prompt.messages, ("assistant", answer), ("user", prompt.follow_ups[0]))
    text = _plain(messages) if template is None else render(template, messages, options)
    return replace(prompt, messages=messages, text=text, follow_ups=prompt.follow_ups[1:])


def _rendered(prompt: Prompt, template: ChatTemplate | None, workload: Workload) -> Prompt:
    if prompt.messages is None or template is None:
        return prompt
    whole = replace(prompt, text=render(template, prompt.messages, workload.chat_template_kwargs))
    later = whole
    while later.follow_ups:  # a template that refuses later turns must do so before the load
        later = next_turn(later, "…", template, workload.chat_template_kwargs)
    return whole


def _plain(messages: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(content for _, content in messages)


STEADY_ONLY = "the steady window counts"


def _scarcity(prompts: Sequence[Prompt], workload: Workload) -> list[str]:
    warnings = []
    distinct, widest = len({prompt.text for prompt in prompts}), max(workload.concurrency)
    if len(prompts) < workload.num_prompts:
        idle = workload.arrival.kind == "closed" and len(prompts) < widest
        few = f": concurrency {widest} is never reached" if idle else ""
        warnings.append(f"{workload.prompts} has {len(prompts)} prompts, not the {workload.num_prompts} asked for{few}")
    if distinct < 8 * widest:
        warnings.append(f"{distinct} distinct prompts are fewer than 8 × concurrency {widest}: {STEADY_ONLY}")
    return warnings


def _template_warnings(prompts: Sequence[Prompt], template: ChatTemplate | None) -> list[str]:
    raw = sum(prompt.messages is None for prompt in prompts)
    if template is None and raw < len(prompts):
        return ["no chat template: messages are sent as plain text, which a chat model was not trained for"]
    if template is not None and raw and prompts[0].category != "random":
        return [f"{raw} of {len(prompts)} prompts are raw text although the model has a chat template"]
    return []


def _hash(prompts: Sequence[Prompt], template: str) -> str:
    """Over ids, texts, messages, follow-ups and the template: what the server gets, but for its own answers."""
    parts = chain([template], *(_hashed(prompt) for prompt in prompts))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _hashed(prompt: Prompt) -> tuple[str, ...]:
    later = (json.dumps(prompt.follow_ups),) if prompt.follow_ups else ()
    return (prompt.prompt_id, prompt.text, json.dumps(prompt.messages), str(prompt.max_tokens), *later)
