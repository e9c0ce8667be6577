"""The generated texts: the same everywhere, in every category, and true where they can be checked."""

import itertools
import json
import re

from sweeper.toy.chat import END, MARKERS, Message, render
from sweeper.toy.corpus import CATEGORIES, EXCHANGES, LIBRARY, Document, chats, corpus_hash, documents, held_out_pieces
from sweeper.toy.texts.words import Exchange, stream

# Over the first 200 conversations of seed 0. It changes only with the templates: a new pair is due then.
CHATS_SHA256 = "9eb1cd0e502b46ce6591e2bb7d1aed8dd178b5b3d8ecf4e5fa49d7c156cb4c7a"


def first_chats(count: int) -> list[Document]:
    return list(itertools.islice(chats("heldout", 0), count))


def exchanges(category: str, count: int) -> list[Exchange]:
    rng = stream("test", category)
    return [EXCHANGES[category](rng) for _ in range(count)]


def test_conversations_are_the_same_on_every_machine_and_python() -> None:
    assert corpus_hash([document.text for document in first_chats(200)]) == CHATS_SHA256


def test_the_corpus_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    def text(seed: int) -> list[str]:
        return [document.text for document in documents(seed, 50_000)]

    assert text(0) == text(0)
    assert text(0) != text(1)


def test_the_corpus_stops_at_its_size_and_holds_every_category() -> None:
    found = list(documents(0, 200_000))
    assert 200_000 <= sum(len(document.text) for document in found) < 210_000
    assert {document.category for document in found} == set(CATEGORIES)


def test_every_training_text_ends_with_the_end_token() -> None:
    assert all(document.text.endswith(f"{END}\n") for document in documents(0, 100_000))


def test_a_conversation_is_its_messages_rendered_and_ends_with_the_assistant() -> None:
    for document in first_chats(50):
        assert document.text == render(document.messages)
        assert document.messages[-1].role == "assistant"


def test_held_out_pieces_are_in_no_training_text() -> None:
    trained = {document.text for document in documents(0, 3_000_000) if document.category == LIBRARY}
    pieces = [document.text for document in held_out_pieces()]
    assert len(pieces) > 30
    assert not trained & {f"{piece}\n{END}\n" for piece in pieces}


def test_an_open_conversation_ends_with_the_assistants_marker() -> None:
    text = render((Message("user", "Hello"),), generation_prompt=True)
    assert text == f"{MARKERS['user']}\nHello{END}\n{MARKERS['assistant']}\n"


def test_worked_additions_are_right() -> None:
    sums = [
        found for e in exchanges("arithmetic", 200) for found in re.findall(r"So (\d+) \+ (\d+) = (\d+)\.", e.answer)
    ]
    assert len(sums) > 100
    assert all(int(a) + int(b) == int(total) for a, b, total in sums)


def test_json_answers_are_json() -> None:
    for exchange in exchanges("json", 100):
        assert len(json.loads(exchange.answer)) >= 3


def test_code_answers_are_python() -> None:
    for exchange in exchanges("code", 100):
        body = exchange.answer.removeprefix("```python\n").removesuffix("\n```")
        compile(body, exchange.question, "exec")


def test_the_sum_of_an_order_is_the_sum_of_its_rows() -> None:
    orders = [e.answer for e in exchanges("table", 100) if "whole order" in e.answer]
    assert orders
    for answer in orders:
        costs = [int(row.split("|")[4]) for row in answer.splitlines()[2:] if row.startswith("|")]
        assert f"The whole order costs {sum(costs)}." in answer
