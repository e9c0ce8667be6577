"""Verdicts sent out. The address comes from the environment, is never stored, and never shown."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweeper.analysis.nightly.verdict import Verdict
from sweeper.nightly.outputs import verdict_document
from sweeper.nightly.settings import Webhook

Post = Callable[[str, Mapping[str, Any]], int]
"""(URL, JSON body) → HTTP status; raises OSError."""


def send(
    verdict: Verdict, webhooks: Sequence[Webhook], post: Post, *, env: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Problems in words, without the address; a webhook that fails changes no verdict."""
    document = verdict_document(verdict)
    problems = []
    for hook in webhooks:
        if verdict.state not in hook.when:
            continue
        url = env.get(hook.url_env, "")
        if not url.startswith(("https://", "http://")):
            problems.append(f"webhook {hook.url_env}: the variable holds no http(s) address")
            continue
        try:
            status = post(url, body(document, hook.shape))
        except OSError as error:
            problems.append(f"webhook {hook.url_env}: {str(error).replace(url, '…')}")
            continue
        if status >= 300:
            problems.append(f"webhook {hook.url_env}: HTTP {status}")
    return tuple(problems)


def body(document: Mapping[str, Any], shape: str) -> dict[str, Any]:
    """`slack`: one text, with its three control characters escaped."""
    if shape == "json":
        return {key: value for key, value in document.items() if key != "series"}
    lines = [f"Sweeper nightly {document['experiment']}: {document['sentence']}"]
    lines += [f"• {note}" for note in document["notes"][:10]]
    text = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text}
