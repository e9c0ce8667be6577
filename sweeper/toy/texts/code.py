"""Small Python classes and functions written to order: names are copied, structure is learned."""

import random

from sweeper.toy.texts.words import FIELDS, THINGS, Exchange, listed, made_up, some, stream

TYPES = ("int", "float", "str", "bool")
DEFAULTS = {"int": "0", "float": "0.0", "str": '""', "bool": "False"}


def code(rng: random.Random) -> Exchange:
    return rng.choice((_plain_class, _plain_class, _loop_function, _parser, _tests))(rng)


def _class_name(rng: random.Random) -> str:
    first = made_up(rng) if rng.random() < 0.5 else rng.choice(FIELDS)
    return first.capitalize() + rng.choice(THINGS).capitalize()


def _plain_class(rng: random.Random) -> Exchange:
    name = _class_name(rng)
    fields = [(field, rng.choice(TYPES)) for field in some(rng, FIELDS, rng.randint(3, 5))]
    asked = listed([f"{field} ({kind})" for field, kind in fields])
    question = f"Write a Python class {name} with the fields {asked}."
    lines = [f"class {name}:"]
    lines += [f'    """A {name} with {listed([field for field, _ in fields])}."""', ""]
    lines.append(f"    def __init__(self, {', '.join(f'{field}: {kind}' for field, kind in fields)}) -> None:")
    lines += [f"        self.{field} = {field}" for field, _ in fields]
    lines += ["", "    def to_dict(self) -> dict:", "        return {"]
    lines += [f'            "{field}": self.{field},' for field, _ in fields]
    lines += ["        }", "", "    @classmethod", f'    def from_dict(cls, data: dict) -> "{name}":']
    lines.append("        return cls(" + ", ".join(f'{kind}(data["{field}"])' for field, kind in fields) + ")")
    for field, kind in fields:
        lines += ["", *_method(rng, field, kind)]
    return Exchange(question, "```python\n" + "\n".join(lines) + "\n```")


def _method(rng: random.Random, field: str, kind: str) -> list[str]:
    if kind == "bool":
        return [f"    def toggle_{field}(self) -> None:", f"        self.{field} = not self.{field}"]
    if kind == "str":
        change = rng.choice(("strip()", "lower()", "upper()", "title()"))
        return [f"    def clean_{field}(self) -> str:", f"        return self.{field}.{change}"]
    verb, sign = rng.choice((("add", "+="), ("take", "-="), ("scale", "*=")))
    return [
        f"    def {verb}_{field}(self, amount: {kind}) -> None:",
        f"        if amount < {DEFAULTS[kind]}:",
        f'            raise ValueError("{field} needs a positive amount")',
        f"        self.{field} {sign} amount",
    ]


def _loop_function(rng: random.Random) -> Exchange:
    thing, field, other = rng.choice(THINGS), *some(rng, FIELDS, 2)
    limit = rng.randint(2, 99)
    word, sign = rng.choice((("above", ">"), ("below", "<"), ("of at least", ">="), ("of at most", "<=")))
    name = f"{rng.choice(('sum', 'collect', 'average'))}_{other}_{made_up(rng)}"
    question = f"Write a Python function {name} over {thing}s whose {field} is {word} {limit}, using their {other}."
    how = name.split("_")[0]
    lines = [
        f"def {name}({thing}s: list) -> {'list' if how == 'collect' else 'float'}:",
        f'    """{how.capitalize()} the {other} of every {thing} with a {field} {word} {limit}."""',
        f"    {other}s = []",
        f"    for {thing} in {thing}s:",
        f"        if {thing}.{field} {sign} {limit}:",
        f"            {other}s.append({thing}.{other})",
    ]
    ends = {
        "sum": [f"    return sum({other}s)"],
        "collect": [f"    return sorted({other}s)"],
        "average": [f"    if not {other}s:", "        return 0.0", f"    return sum({other}s) / len({other}s)"],
    }
    lines += ends[how]
    lines += ["", "", f"def test_{name}() -> None:", f"    {thing}s = []"]
    for value in sorted(rng.sample(range(1, 120), 3)):
        lines.append(f"    {thing}s.append(make_{thing}({field}={value}, {other}={value * 2}))")
    lines.append(f"    assert {name}({thing}s) is not None")
    return Exchange(question, "```python\n" + "\n".join(lines) + "\n```")


def _parser(rng: random.Random) -> Exchange:
    thing, fields = rng.choice(THINGS), some(rng, FIELDS, rng.randint(3, 5))
    mark = rng.choice((",", ";", "|", ":"))
    question = f'Write a Python parser for lines of {thing}s: {mark.join(fields)} (separator "{mark}").'
    lines = [
        f"def parse_{thing}(line: str) -> dict:",
        f'    """Read one {thing} from a line of {len(fields)} values."""',
        f'    parts = line.strip().split("{mark}")',
        f"    if len(parts) != {len(fields)}:",
        f'        raise ValueError(f"expected {len(fields)} values, got {{len(parts)}}")',
        f"    {thing} = {{}}",
    ]
    lines += [f'    {thing}["{field}"] = parts[{i}].strip()' for i, field in enumerate(fields)]
    lines += [f"    return {thing}", "", "", f"def format_{thing}({thing}: dict) -> str:"]
    lines.append(f'    """Write one {thing} as a line; the inverse of parse_{thing}."""')
    lines += ["    parts = []"] + [f'    parts.append(str({thing}["{field}"]))' for field in fields]
    lines += [f'    return "{mark}".join(parts)', "", "", f"def load_{thing}s(path: str) -> list:"]
    lines += [f"    {thing}s = []", "    with open(path) as file:", "        for line in file:"]
    lines += ["            if line.strip():", f"                {thing}s.append(parse_{thing}(line))"]
    lines.append(f"    return {thing}s")
    return Exchange(question, "```python\n" + "\n".join(lines) + "\n```")


def _tests(rng: random.Random) -> Exchange:
    name, step = made_up(rng), rng.randint(2, 9)
    start, count = rng.randint(1, 40), rng.randint(4, 7)
    question = f"Write {count} pytest tests for {name}(n), which returns n + {step}; start at n = {start}."
    lines = [f"from {made_up(stream(name))} import {name}"]
    for n in range(start, start + count):
        lines += ["", "", f"def test_{name}_of_{n}() -> None:", f"    result = {name}({n})"]
        lines += [f"    assert result == {n + step}", f"    assert result - {step} == {n}"]
    return Exchange(question, "```python\n" + "\n".join(lines) + "\n```")
