"""The training text: seeded exchanges of every category and pieces of the standard library."""

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sweeper.toy.chat import END, Message, render
from sweeper.toy.texts import library
from sweeper.toy.texts.code import code
from sweeper.toy.texts.edits import edits
from sweeper.toy.texts.records import records, tables
from sweeper.toy.texts.stories import stories
from sweeper.toy.texts.sums import sums
from sweeper.toy.texts.words import Exchange, stream

EXCHANGES: dict[str, Callable[[random.Random], Exchange]] = {
    "code": code,
    "json": records,
    "table": tables,
    "arithmetic": sums,
    "story": stories,
    "edit": edits,
}
LIBRARY = "library"
CATEGORIES = (*EXCHANGES, LIBRARY)
LIBRARY_SHARE = 0.2
SECOND_TURN_SHARE = 0.2
SYSTEM_SHARE = 0.1
SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer briefly.", "You are a careful assistant.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One training text; `messages` is empty for a piece of the library."""

    category: str
    text: str
    messages: tuple[Message, ...] = ()


def documents(seed: int, size_bytes: int) -> Iterator[Document]:
    """Documents until their text reaches `size_bytes`; the same for the same seed and Python version."""
    rng, pieces, written = stream("corpus", seed), library.definitions(held_out=False), 0
    while written < size_bytes:
        document = _library(rng, pieces) if rng.random() < LIBRARY_SHARE else _chat(rng)
        written += len(document.text)
        yield document


def chats(*key: object) -> Iterator[Document]:
    """An endless stream of conversations of its own for `key`."""
    rng = stream("chats", *key)
    while True:
        yield _chat(rng)


def held_out_pieces() -> Iterator[Document]:
    """Pieces of library modules that are in no training text, in a random order of their own."""
    pieces = library.definitions(held_out=True)
    for piece in stream("held-out pieces").sample(pieces, len(pieces)):
        yield Document(category=LIBRARY, text=piece)


def corpus_hash(texts: list[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()


def _library(rng: random.Random, pieces: tuple[str, ...]) -> Document:
    return Document(category=LIBRARY, text=f"{rng.choice(pieces)}\n{END}\n")


def _chat(rng: random.Random) -> Document:
    """One or two exchanges; the category is that of the last one, the one a prompt asks for."""
    category = rng.choice(list(EXCHANGES))
    messages: list[Message] = []
    if rng.random() < SYSTEM_SHARE:
        messages.append(Message("system", rng.choice(SYSTEM_PROMPTS)))
    messages += EXCHANGES[category](rng).messages()
    if rng.random() < SECOND_TURN_SHARE:
        category = rng.choice(list(EXCHANGES))
        messages += EXCHANGES[category](rng).messages()
    return Document(category=category, text=render(tuple(messages)), messages=tuple(messages))
