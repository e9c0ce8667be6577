"""Chat templates of tokenizers, rendered without the transformers library: jinja2 in its sandbox, a fixed date."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sweeper.core.sample import ChatTemplate
from sweeper.errors import PreflightError

FIXED_DATE = datetime(2025, 1, 1)
"""Templates that print today's date would give other prompts every day."""


def template_name(template: ChatTemplate) -> str:
    return f"tokenizer:{sha256(template.source.encode()).hexdigest()[:12]}"


def render(template: ChatTemplate, messages: Sequence[tuple[str, str]], options: Mapping[str, Any]) -> str:
    """The prompt text up to where the assistant speaks. Raises PreflightError when the template refuses."""
    values = {
        "messages": [{"role": role, "content": content} for role, content in messages],
        "add_generation_prompt": True,
        "tools": None,
        "documents": None,
        **template.special_tokens,
        **options,
    }
    try:
        text = _compiled(template.source).render(values)
    except Exception as error:  # noqa: BLE001  a template is a program of others: it may fail in any way
        told = str(error) or type(error).__name__
        raise PreflightError(f"the tokenizer's chat template failed: {told}; set chat_template: none") from None
    bos = template.special_tokens.get("bos_token", "")
    return text.removeprefix(bos) if bos and template.bos_added_by_tokenizer else text


@lru_cache(maxsize=8)
def _compiled(source: str) -> Template:
    """Later turns are rendered while a load runs, where compiling (some 10 ms) would hold everything up."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = FIXED_DATE.strftime
    return environment.from_string(source)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def load_template(tokenizer_dir: Path) -> ChatTemplate | None:
    """The tokenizer's chat template: chat_template.jinja, else tokenizer_config.json; None when it has none."""
    config = _json(tokenizer_dir / "tokenizer_config.json")
    beside = tokenizer_dir / "chat_template.jinja"
    source = _text(beside) if beside.is_file() else _source(config.get("chat_template"))
    if source is None:
        return None
    special = {key: _token(config[key]) for key in config if key.endswith("_token") and _token(config[key])}
    return ChatTemplate(
        source=source,
        special_tokens=special,
        bos_added_by_tokenizer=_adds_bos(config, _json(tokenizer_dir / "tokenizer.json"), special.get("bos_token")),
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise PreflightError(f"{path}: not JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PreflightError(f"{path}: cannot be read: {error}; correct it, or set chat_template: none") from None


def _source(value: Any) -> str | None:
    """A string, or a list of named templates of which `default` is meant."""
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _token(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _adds_bos(config: Mapping[str, Any], tokenizer: Mapping[str, Any], bos: str | None) -> bool:
    if not bos:
        return False
    if "add_bos_token" in config:
        return bool(config["add_bos_token"])
    processors = tokenizer.get("post_processor") or {}
    steps = processors.get("processors", [processors]) if processors.get("type") == "Sequence" else [processors]
    return any(
        bos in (step.get("special_tokens") or {}) and _starts_with(step.get("single"), bos)
        for step in steps
        if step.get("type") == "TemplateProcessing"
    )


def _starts_with(single: Any, bos: str) -> bool:
    first = single[0] if isinstance(single, list) and single else {}
    return bool(first.get("SpecialToken", {}).get("id") == bos)
