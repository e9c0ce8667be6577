"""The tasks of the built-in suites: small worlds (orders, flights, sensors, …) and what can be asked about them."""

import json
import random
from dataclasses import dataclass

from sweeper.effects.suite_words import ADVERBS, CITIES, NAMES, PLACES, SENTENCES, TOPICS, WORLDS, Field, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One prompt. `answer`: a string that a right answer contains."""

    messages: tuple[tuple[str, str], ...]
    answer: str | None = None
    follow_ups: tuple[str, ...] = ()


def _ask(text: str, *, answer: str | None = None, system: str | None = None) -> Task:
    before = (("system", system),) if system else ()
    return Task(messages=(*before, ("user", text)), answer=answer)


def _record(draw: random.Random, world: World) -> dict[str, object]:
    return {field.name: _value(draw, field) for field in world.fields}


def _value(draw: random.Random, field: Field) -> object:
    if field.choices:
        return draw.choice(field.choices)
    return draw.randint(field.low, field.high)


def _numeric(draw: random.Random, world: World) -> Field:
    return draw.choice([field for field in world.fields if not field.choices])


def _textual(draw: random.Random, world: World) -> Field:
    return draw.choice([field for field in world.fields if field.choices])


_OPERATIONS = (
    ("total_{number}_by_{text}", "the sum of `{number}` for each `{text}`", "dict[str, int]"),
    ("average_{number}_of_{text}", "the mean `{number}` of the {things} whose `{text}` is `wanted`", "float"),
    ("top_{things}_by_{number}", "the `n` {things} with the largest `{number}`, largest first", "list[dict]"),
    (
        "{things}_within_{number}",
        "the {things} whose `{number}` lies between `low` and `high`, both included",
        "list[dict]",
    ),
    ("count_{things}_per_{text}", "how many {things} there are for each `{text}`", "dict[str, int]"),
    ("first_{thing}_of_each_{text}", "the first of the {things} for each `{text}`, in their order", "list[dict]"),
    ("moving_average_of_{number}", "the means of `{number}` over every window of `size` {things}", "list[float]"),
    ("{things}_as_csv", "a CSV text with a header and one line for each of the {things}", "str"),
    ("median_{number}_of_{things}", "the median `{number}`; the mean of the middle two for an even count", "float"),
    (
        "merge_{things}_by_{text}",
        "one dictionary for each `{text}`, later {things} overriding earlier ones",
        "list[dict]",
    ),
    ("histogram_of_{number}", "how many {things} fall in each bucket of `width` of `{number}`", "dict[int, int]"),
    ("invalid_{things}", "the {things} with a missing `{text}` or a negative `{number}`", "list[dict]"),
)


def code_completion(draw: random.Random) -> Task:
    """A Python function with a docstring and an example, to be completed."""
    world = draw.choice(WORLDS)
    number, text = _numeric(draw, world), _textual(draw, world)
    name, doc, kind = draw.choice(_OPERATIONS)
    words = {"number": number.name, "text": text.name, "things": world.plural, "thing": world.singular}
    extra = "".join(f", {arg}" for arg in ("wanted", "n", "low", "high", "size", "width") if f"`{arg}`" in doc)
    lines = [
        "Complete this Python function. Answer with the whole function in one code block and nothing else.",
        "",
        "```python",
        f"def {name.format(**words)}({world.plural}: list[dict]{extra}) -> {kind}:",
        f'    """Return {doc.format(**words)}.',
        "",
        f"    One of the {world.plural} looks like this: {_record(draw, world)!r}",
        '    """',
        "```",
    ]
    return _ask("\n".join(lines))


def code_edit(draw: random.Random) -> Task:
    """A class to be returned with one name changed: nearly all of the answer is copied."""
    world = draw.choice(WORLDS)
    old = _numeric(draw, world).name
    new = f"{draw.choice(ADVERBS)}_{old}"
    body = [f"class {world.singular.title()}:", f'    """One of the {world.plural}."""', ""]
    body.append(f"    def __init__(self, {', '.join(field.name for field in world.fields)}):")
    body += [f"        self.{field.name} = {field.name}" for field in world.fields]
    for field in world.fields:
        body += ["", f"    def describe_{field.name}(self):", f'        return f"{field.name}: {{self.{field.name}}}"']
    body += ["", f"    def is_large(self, limit={draw.randint(2, 900)}):", f"        return self.{old} > limit"]
    code = "\n".join(body)
    text = f"Rename `{old}` to `{new}` everywhere in this class and return the whole class, otherwise unchanged.\n\n"
    return _ask(f"{text}```python\n{code}\n```")


def json_extraction(draw: random.Random) -> Task:
    """Records told in prose, wanted as JSON."""
    world = draw.choice(WORLDS)
    records = [_record(draw, world) for _ in range(draw.randint(3, 6))]
    told = " ".join(_told(draw, world, record) for record in records)
    keys = ", ".join(field.name for field in world.fields)
    text = f"Return a JSON array with one object for each of the {world.plural} below, with the keys {keys}. JSON only."
    return _ask(f"{text}\n\n{told}")


def _told(draw: random.Random, world: World, record: dict[str, object]) -> str:
    parts = [f"its {name.replace('_', ' ')} is {value}" for name, value in record.items()]
    opening = draw.choice(("There is one", "Another entry is one", "The list also has one", "Then comes one"))
    return f"{opening} of the {world.plural}: {', '.join(parts[:-1])} and {parts[-1]}."


def word_problem(draw: random.Random) -> Task:
    """Arithmetic in a story, with one right number."""
    name, other = draw.sample(NAMES, 2)
    thing = draw.choice(("stamps", "apples", "marbles", "tickets", "shells", "coins", "postcards", "buttons"))
    a, b, c, d = draw.randint(12, 90), draw.randint(2, 9), draw.randint(3, 40), draw.randint(2, 6)
    kind = draw.randrange(4)
    if kind == 0:
        story = f"{name} has {a} {thing}. {other} brings {b} bags with {c} {thing} each. Then {name} gives {d} away."
        result = a + b * c - d
        question = f"How many {thing} does {name} have now?"
    elif kind == 1:
        story = f"{name} and {other} share {b * d * c} {thing} in {b} equal boxes, then open {d - 1} of the boxes."
        result = d * c * (b - d + 1) if b >= d - 1 else 0
        question = f"How many {thing} are still in closed boxes?"
        if b < d - 1:
            return word_problem(draw)
    elif kind == 2:
        story = f"A train from {draw.choice(CITIES)} leaves at minute {c} and stops {b} times for {d} minutes each."
        result = c + a + b * d
        story += f" Driving alone takes {a} minutes."
        question = "At which minute does it arrive?"
    else:
        story = f"{name} saves {b} coins every day for {c} days and {other} saves {d} times as much in all."
        result = b * c * (d + 1)
        question = "How many coins do they have together?"
    return _ask(f"{story} {question} Reason step by step and end with a line `Answer: N`.", answer=f"Answer: {result}")


def summary(draw: random.Random) -> Task:
    """A report of some paragraphs, wanted in three sentences."""
    return _ask(f"Summarise this report in exactly three sentences.\n\n{_report(draw, paragraphs=draw.randint(3, 5))}")


def _report(draw: random.Random, *, paragraphs: int) -> str:
    return "\n\n".join(_paragraph(draw) for _ in range(paragraphs))


def _paragraph(draw: random.Random) -> str:
    values = {
        "name": draw.choice(NAMES),
        "other": draw.choice(NAMES),
        "city": draw.choice(CITIES),
        "place": draw.choice(PLACES),
        "topic": draw.choice(TOPICS),
        "number": draw.randint(3, 980),
        "year": draw.randint(1951, 2024),
    }
    return " ".join(sentence.format(**values) for sentence in draw.sample(SENTENCES, draw.randint(4, 6)))


def translation_table(draw: random.Random) -> Task:
    """Sentences to be put in a table beside their translation."""
    language = draw.choice(("French", "German", "Spanish", "Italian", "Portuguese", "Dutch"))
    rows = draw.randint(4, 8)
    lines = [f"{i}. {_paragraph(draw).split('. ')[0].rstrip('.')}." for i in range(1, rows + 1)]
    head = f"Translate each sentence into {language}. Answer with a Markdown table: number, English, {language}."
    return _ask(head + "\n\n" + "\n".join(lines))


def open_writing(draw: random.Random) -> Task:
    """Something free: every word is a choice."""
    form = draw.choice(
        ("a short story", "a letter to a friend", "a speech", "a fairy tale", "a diary entry", "a dialogue")
    )
    tone = draw.choice(("hopeful", "melancholic", "humorous", "solemn", "mysterious", "matter-of-fact"))
    a, b = draw.sample(TOPICS, 2)
    where, who = draw.choice(PLACES), draw.choice(NAMES)
    return _ask(
        f"Write {form} of about {draw.choice((150, 200, 250))} words in a {tone} tone. It takes place in {where}, "
        f"is about {who}, and connects {a} with {b}."
    )


def tool_call(draw: random.Random) -> Task:
    """A function call as JSON, from its schema and a wish."""
    world = draw.choice(WORLDS)
    record = _record(draw, world)
    types = {
        f.name: {"type": "string", "enum": list(f.choices)} if f.choices else {"type": "integer"} for f in world.fields
    }
    name = f"{draw.choice(('create', 'update', 'find', 'archive'))}_{world.singular}"
    schema = {"name": name, "parameters": {"type": "object", "properties": types, "required": list(types)}}
    wish = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in record.items())
    system = 'You call functions. Answer with one JSON object {"name": …, "arguments": {…}} and nothing else.\n'
    return _ask(
        f"Please {name.replace('_', ' ')} with {wish}.",
        system=system + json.dumps(schema, indent=1),
        answer=f'"{name}"',
    )


def multi_turn(draw: random.Random) -> Task:
    """A conversation of three turns, each asked with the model's own answers before it."""
    topic, other = draw.sample(TOPICS, 2)
    name, city = draw.choice(NAMES), draw.choice(CITIES)
    asked = f"I am {name} from {city}. Give me one reason to learn about {topic}."
    plan = f"Plan a week for me in which I learn about both, day by day, with {draw.randint(2, 4)} steps a day."
    return Task(messages=(("user", asked),), follow_ups=(f"And how does that relate to {other}?", plan))


def long_context(draw: random.Random, *, words: int) -> Task:
    """A long archive of reports with one fact to be found in it."""
    parts: list[str] = []
    size = 0
    while size < words:
        part = f"Report {len(parts) + 1}. {_paragraph(draw)}"
        parts.append(part)
        size += len(part.split())
    code, name = draw.randint(10000, 99999), draw.choice(NAMES)
    parts.insert(draw.randrange(len(parts)), f"Note for the archive: the code of {name} is {code}.")
    question = (
        f"What is the code of {name}? Then tell in two sentences what report {draw.randint(1, len(parts) - 1)} says."
    )
    return _ask("\n\n".join([*parts, question]), answer=str(code))
