"""Arithmetic worked out step by step."""

import random

from sweeper.toy.texts.words import GOODS, NUMBER_WORDS, Exchange, person


def sums(rng: random.Random) -> Exchange:
    return rng.choice((_additions, _additions, _counting, _word_problems))(rng)


def _additions(rng: random.Random) -> Exchange:
    pairs = [(rng.randint(11, 999), rng.randint(11, 999)) for _ in range(rng.randint(2, 4))]
    question = "Add step by step: " + ", ".join(f"{a} + {b}" for a, b in pairs) + "."
    return Exchange(question, "\n\n".join(_addition(a, b) for a, b in pairs))


def _addition(a: int, b: int) -> str:
    lines, carry, places = [f"{a} + {b}:"], 0, ("ones", "tens", "hundreds")
    for place in range(max(len(str(a)), len(str(b)))):
        left, right = a // 10**place % 10, b // 10**place % 10
        total = left + right + carry
        plus = f" + {carry}" if carry else ""
        carry, digit = divmod(total, 10)
        rest = f", write {digit} and carry {carry}" if carry else f", write {digit}"
        lines.append(f"- {places[place]}: {left} + {right}{plus} = {total}{rest}")
    return "\n".join([*lines, f"So {a} + {b} = {a + b}."])


def _counting(rng: random.Random) -> Exchange:
    start, step, count = rng.randint(1, 60), rng.randint(2, 9), rng.randint(10, 18)
    question = f"Count {count} steps of {step} from {start}, one line each."
    lines = [f"Step {i}: {start + (i - 1) * step} + {step} = {start + i * step}" for i in range(1, count + 1)]
    return Exchange(question, "\n".join([*lines, f"We end at {start + count * step}."]))


def _word_problems(rng: random.Random) -> Exchange:
    name, goods = person(rng), rng.choice(GOODS)
    have, steps = rng.randint(8, 20), rng.randint(4, 6)
    told, lines, now = [], [f"At first {name} has {have} {goods}."], have
    for _ in range(steps):
        amount = rng.randint(1, 7)
        gain = now < 8 or rng.random() < 0.5
        told.append(f"{'buys' if gain else 'sells'} {NUMBER_WORDS[amount]}")
        then = now + amount if gain else now - amount
        sign = "+" if gain else "-"
        lines.append(f"Then {name} {told[-1]}: {now} {sign} {amount} = {then}, so {then} {goods} are there.")
        now = then
    question = f"{name} has {have} {goods}, then {', '.join(told[:-1])} and {told[-1]}. How many are left?"
    return Exchange(question, "\n".join([*lines, f"Answer: {now} {goods}."]))
