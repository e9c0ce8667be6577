"""The chat form of the toy: role markers, rendering, and the same thing as a Jinja template."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant"]

END = "<|end|>"
PAD = "<|pad|>"
MARKERS: dict[Role, str] = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>"}
SPECIAL_TOKENS = (END, PAD, *MARKERS.values())

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


def render(messages: tuple[Message, ...], *, generation_prompt: bool = False) -> str:
    """The text the template makes of `messages`; training documents use exactly this form."""
    text = "".join(f"{MARKERS[m.role]}\n{m.content}{END}\n" for m in messages)
    return text + f"{MARKERS['assistant']}\n" if generation_prompt else text
