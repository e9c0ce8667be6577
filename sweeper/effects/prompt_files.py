"""Prompt files by what is in them: Spec-Bench/MT-Bench, ShareGPT, bench_serving, OpenAI batch, plain lines."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper.core.plain import plain_line, sendable
from sweeper.core.sample import Prompt
from sweeper.errors import ConfigError

Row = Mapping[str, Any]
Messages = tuple[tuple[str, str], ...]
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "system": "system",
}


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of a .txt (one a line), .json (a list) or .jsonl file. Raises ConfigError with file:line."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if path.suffix == ".txt":
        lines = [line for line in _lines(text) if line.strip()]
        prompts = [_said(f"{path.stem}-{i}", path.stem, (("user", line),)) for i, line in enumerate(lines)]
    elif path.suffix == ".json":
        prompts = _from_list(path, text)
    else:
        prompts = _from_lines(path, text)
    if not prompts:
        raise ConfigError(f"{path}: no prompts in it")
    if (odd := next((prompt for prompt in prompts if not sendable(_whole(prompt))), None)) is not None:
        raise ConfigError(f"{path}: prompt {odd.prompt_id!r} holds half a character (a lone surrogate); correct it")
    if (bare := next((prompt for prompt in prompts if not prompt.text.strip()), None)) is not None:
        raise ConfigError(f"{path}: prompt {bare.prompt_id!r} is empty; give it a text or remove it")
    return _told_apart(prompts)


def _told_apart(prompts: list[Prompt]) -> list[Prompt]:
    """Answers are compared by the id of their prompt: what a file gives twice is numbered."""
    seen: Counter[str] = Counter()
    taken = {prompt.prompt_id for prompt in prompts}
    found = []
    for prompt in prompts:
        name = prompt.prompt_id
        seen[name] += 1
        if seen[name] > 1:
            while (new := f"{name}#{seen[name]}") in taken:
                seen[name] += 1
            taken.add(new)
            prompt = replace(prompt, prompt_id=new)
        found.append(prompt)
    return found


def _lines(text: str) -> list[str]:
    """By line ends alone: JSON may hold other separators, such as U+2028, as they are."""
    return text.split("\n")


def _whole(prompt: Prompt) -> str:
    """All that goes into a request or a hash."""
    said = [content for _, content in prompt.messages or ()]
    return "".join([prompt.prompt_id, prompt.category, prompt.text, *said, *prompt.follow_ups, prompt.answer or ""])


def _from_list(path: Path, text: str) -> list[Prompt]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: a list of conversations is expected, as ShareGPT has it")
    return [prompt for i, row in enumerate(rows) if (prompt := prompt_of(row, f"{path.stem}-{i}")) is not None]


def _from_lines(path: Path, text: str) -> list[Prompt]:
    prompts = []
    for number, line in enumerate(_lines(text), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}") from None
        prompt = prompt_of(row, f"{path.stem}-{number}")
        if prompt is None:
            raise ConfigError(
                f"{path}:{number}: no prompt; known keys: text, prompt, messages, turns, conversations, body.messages"
            )
        prompts.append(prompt)
    return prompts


def prompt_of(row: Any, fallback_id: str) -> Prompt | None:
    """One row in any of the known shapes; None: no prompt in it (a ShareGPT row that does not start with a human)."""
    if isinstance(row, str):
        return _said(fallback_id, "file", (("user", row),))
    if not isinstance(row, Mapping):
        return None
    prompt_id = str(row.get("id", row.get("question_id", row.get("custom_id", fallback_id))))
    category = plain_line(str(row.get("category") or "file"))
    if isinstance(row.get("text"), str):
        return Prompt(prompt_id=prompt_id, category=category, text=row["text"], max_tokens=_max_tokens(row))
    messages = _messages(row)
    if not messages:
        return None
    later = _follow_ups(row)
    said = _said(prompt_id, category, messages, answer=None if later else _answer(row), max_tokens=_max_tokens(row))
    return replace(said, follow_ups=later)


def _follow_ups(row: Row) -> tuple[str, ...]:
    """The later turns of Spec-Bench and MT-Bench, asked with the model's own answers before them.

    An `answer` of such a row is not checked: the file does not say to which turn it belongs.
    """
    turns = row.get("turns")
    return tuple(map(str, turns[1:])) if isinstance(turns, list) else ()


def _messages(row: Row) -> Messages:
    """Up to the first thing the model shall say."""
    if isinstance(row.get("turns"), list) and row["turns"]:
        return (("user", _content(row["turns"][0])),)
    body = row.get("body")
    said = row.get("messages") or row.get("conversations") or row.get("conversation")
    if isinstance(body, Mapping):
        said = body.get("messages") or body.get("prompt")
    if said is None:
        said = row.get("prompt", row.get("question", row.get("instruction")))
    if isinstance(said, str):
        return (("user", said),)
    return _until_model_speaks(said) if isinstance(said, list) else ()


def _until_model_speaks(turns: list[Any]) -> Messages:
    """ShareGPT and bench_serving rows hold old answers too; messages that end with the user are kept whole."""
    pairs: list[tuple[str, str]] = []
    for turn in turns:
        if not isinstance(turn, Mapping):
            return ()
        role = _ROLES.get(str(turn.get("role", turn.get("from", ""))), "")
        pairs.append((role, _content(turn.get("content", turn.get("value", "")))))
    if pairs and pairs[-1][0] != "user":
        first_answer = next((i for i, (role, _) in enumerate(pairs) if role not in ("user", "system")), len(pairs))
        pairs = pairs[:first_answer]
    return tuple(pairs) if pairs and pairs[-1][0] == "user" and all(role for role, _ in pairs) else ()


def _content(value: Any) -> str:
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, Mapping))
    return "" if value is None else str(value)


def _max_tokens(row: Row) -> int | None:
    body = row.get("body") if isinstance(row.get("body"), Mapping) else {}
    assert isinstance(body, Mapping)
    for value in (
        row.get("max_tokens"),
        row.get("output_len"),
        body.get("max_tokens"),
        body.get("max_completion_tokens"),
    ):
        if isinstance(value, int) and value > 0:
            return value
    return None


def _answer(row: Row) -> str | None:
    answer = row.get("answer")
    return str(answer) if isinstance(answer, str | int) else None


def _said(
    prompt_id: str, category: str, messages: Messages, *, answer: str | None = None, max_tokens: int | None = None
) -> Prompt:
    return Prompt(
        prompt_id=prompt_id,
        category=category,
        text="\n\n".join(content for _, content in messages),
        messages=messages,
        answer=answer,
        max_tokens=max_tokens,
    )
