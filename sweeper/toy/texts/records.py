"""JSON records and tables whose values follow from the question."""

import json
import random
from collections.abc import Mapping, Sequence

from sweeper.toy.texts.words import (
    CITIES,
    FIELDS,
    GOODS,
    THINGS,
    UNITS,
    Exchange,
    listed,
    made_up,
    person,
    some,
)

TOOLS = ("find", "create", "update", "delete", "list", "count")


def records(rng: random.Random) -> Exchange:
    return rng.choice((_readings, _people, _tool_calls))(rng)


def _readings(rng: random.Random) -> Exchange:
    thing, site, unit = rng.choice(THINGS), rng.choice(CITIES), rng.choice(UNITS)
    first, value, step = rng.randint(1, 400), rng.randint(10, 90), rng.randint(1, 9)
    count = rng.randint(4, 8)
    question = (
        f"List {count} {thing} readings as JSON. Site {site}, unit {unit}, first id {first}, "
        f"first value {value}, step {step}."
    )
    rows = [
        {"id": first + i, "kind": thing, "site": site, "value": value + i * step, "unit": unit} for i in range(count)
    ]
    return Exchange(question, _json_rows(rows))


def _people(rng: random.Random) -> Exchange:
    names = [person(rng) for _ in range(rng.randint(3, 5))]
    city, field = rng.choice(CITIES), rng.choice(FIELDS)
    values = [rng.randint(1, 99) for _ in names]
    facts = listed([f"{name} has {field} {value}" for name, value in zip(names, values, strict=True)])
    question = f"Extract JSON from this text: In {city}, {facts}."
    rows = [
        {"person": name, "city": city, field: value, "high": value > 50}
        for name, value in zip(names, values, strict=True)
    ]
    return Exchange(question, _json_rows(rows))


def _tool_calls(rng: random.Random) -> Exchange:
    tool = f"{rng.choice(TOOLS)}_{rng.choice(THINGS)}"
    keys = some(rng, FIELDS, 3)
    names = [made_up(rng) for _ in range(rng.randint(3, 5))]
    question = f"Call {tool} for {listed(names)} with {listed(keys)}, counting from {(start := rng.randint(1, 60))}."
    rows = [
        {"tool": tool, "arguments": {"target": name, **{key: start + i * 3 + j for j, key in enumerate(keys)}}}
        for i, name in enumerate(names)
    ]
    return Exchange(question, _json_rows(rows))


def _json_rows(rows: Sequence[Mapping[str, object]]) -> str:
    return "[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]"


def tables(rng: random.Random) -> Exchange:
    return rng.choice((_price_table, _power_table))(rng)


def _price_table(rng: random.Random) -> Exchange:
    goods = some(rng, GOODS, rng.randint(4, 7))
    prices = [rng.randint(2, 9) for _ in goods]
    counts = [rng.randint(2, 9) for _ in goods]
    orders = [f"{n} {g} at {p}" for g, p, n in zip(goods, prices, counts, strict=True)]
    question = f"Make a table of the order: {listed(orders)}."
    lines = ["| item | price | count | cost | sum |", "|---|---|---|---|---|"]
    total = 0
    for good, price, count in zip(goods, prices, counts, strict=True):
        total += price * count
        lines.append(f"| {good} | {price} | {count} | {price * count} | {total} |")
    return Exchange(question, "\n".join([*lines, "", f"The whole order costs {total}."]))


def _power_table(rng: random.Random) -> Exchange:
    start, count, factor = rng.randint(1, 30), rng.randint(6, 10), rng.randint(2, 9)
    name = made_up(rng)
    question = f"Make a table of n, {name} = {factor} * n and n + {name}, for {count} rows from n = {start}."
    lines = [f"| n | {name} | n + {name} | even |", "|---|---|---|---|"]
    for n in range(start, start + count):
        lines.append(f"| {n} | {factor * n} | {n + factor * n} | {'yes' if n % 2 == 0 else 'no'} |")
    return Exchange(question, "\n".join(lines))
