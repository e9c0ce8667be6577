"""Copying with a change: rename, tabulate, reverse, spell out. The draft's best case."""

import random

from sweeper.toy.texts.stories import tell
from sweeper.toy.texts.words import (
    ADJECTIVES,
    FIELDS,
    OBJECTS,
    THINGS,
    Exchange,
    made_up,
    person,
    some,
)


def edits(rng: random.Random) -> Exchange:
    return rng.choice((_rename_person, _rename_field, _tag_list, _glossary))(rng)


def _rename_person(rng: random.Random) -> Exchange:
    cast, paragraphs = tell(rng)
    text, old, new = " ".join(paragraphs[:2]), cast["hero"], person(rng)
    return Exchange(f'Replace "{old}" by "{new}":\n{text}', f"{text.replace(old, new)}\n\nI replaced {old} by {new}.")


def _rename_field(rng: random.Random) -> Exchange:
    thing, new = rng.choice(THINGS), made_up(rng)
    fields = some(rng, FIELDS, rng.randint(3, 4))
    lines = [f"def show_{thing}({thing}, out):", f"    count = {rng.randint(0, 99)}"]
    for field in fields:
        lines += [f"    if {thing}.{field} is not None:", f'        out.write("{field} = %s" % {thing}.{field})']
        lines.append(f"        count += {rng.randint(1, 9)}")
    body = "\n".join([*lines, "    return count"])
    question = f"Rename {thing} to {new} in this code:\n```python\n{body}\n```"
    return Exchange(question, f"```python\n{body.replace(thing, new)}\n```")


def _tag_list(rng: random.Random) -> Exchange:
    tag, items = made_up(rng), [f"{rng.choice(ADJECTIVES)} {o}" for o in some(rng, OBJECTS, rng.randint(5, 8))]
    question = f"Number the list and end every line with the tag {tag}: {', '.join(items)}."
    lines = [f"{i}. The {item} ({tag})" for i, item in enumerate(items, 1)]
    backwards = ", ".join(reversed(items))
    return Exchange(question, "\n".join([*lines, "", f"Backwards: {backwards}."]))


def _glossary(rng: random.Random) -> Exchange:
    pairs = [(made_up(rng), word) for word in some(rng, OBJECTS, rng.randint(4, 6))]
    sentence = some(rng, tuple(strange for strange, _ in pairs), 4)
    meanings = ", ".join(f"{strange} = {word}" for strange, word in pairs)
    known = dict(pairs)
    lines = [f"- {strange} means {known[strange]}" for strange in sentence]
    plain = " ".join(known[strange] for strange in sentence)
    question = f"With {meanings}, translate word by word: {' '.join(sentence)}."
    return Exchange(question, "\n".join([*lines, f"Together: {plain}.", f"And back: {' '.join(sentence)}."]))
