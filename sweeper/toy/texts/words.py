"""Seeded random streams, word lists and made-up names for the generated texts."""

import random
from dataclasses import dataclass

from sweeper.toy.chat import Message


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question and its answer."""

    question: str
    answer: str

    def messages(self) -> tuple[Message, Message]:
        return Message("user", self.question), Message("assistant", self.answer)


def stream(*key: object) -> random.Random:
    """A random stream of its own for `key`, the same on every machine."""
    return random.Random(":".join(map(str, key)))  # noqa: S311 - text, not secrets


def words_of(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ONSETS = ("b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "r", "s", "t", "th", "v", "z")
VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
CODAS = ("", "", "", "n", "l", "r", "s", "m", "th")

FIRST_NAMES = words_of(
    "Ada Ben Clara Dario Edith Farid Greta Hugo Ines Jonas Karin Leo Mara Nils Olga Pavel Rosa Sami Tilda Uwe "
    "Vera Wim Yara Zeno Anouk Boris Celia Dana Emil Fiona Gil Hanna Ivo Judit Kai Lena Milo Nora Otto Petra"
)
PLACES = words_of(
    "harbour mill orchard library bakery lighthouse market station workshop garden bridge museum theatre "
    "school farm chapel quarry forge inn observatory"
)
CITIES = words_of(
    "Oslo Lyon Porto Turin Ghent Graz Malmo Bergen Zagreb Tartu Vilnius Gdansk Leeds Cork Bilbao Basel Bremen "
    "Aarhus Tampere Split"
)
OBJECTS = words_of(
    "lantern compass kettle violin ladder clock basket umbrella telescope drum map key mirror rope bell "
    "hammer letter painting coat boat"
)
ADJECTIVES = words_of(
    "old red small heavy broken silver wooden quiet bright strange long dusty green narrow warm cold round "
    "famous empty golden"
)
ANIMALS = words_of("cat dog owl fox goat crow horse hen mouse hare otter badger")
GOODS = words_of(
    "apples bread cheese candles nails paper soap tea salt wool rope plates lamps boots pencils honey rice flour "
    "stamps ribbons"
)
FIELDS = words_of(
    "name size price weight colour height width speed age level score rank length volume energy charge owner "
    "region status limit count total offset delay depth angle radius mass power cost"
)
THINGS = words_of(
    "planet ticket sensor invoice parcel player vehicle account battery camera filter garden journal kettle "
    "lesson machine network order packet recipe signal station tower vessel widget"
)
UNITS = words_of("kPa bar volt amp lux ppm dB mm kg watt")
NUMBER_WORDS = words_of(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)


def made_up(rng: random.Random) -> str:
    """A pronounceable word that is in no dictionary, so that it has to be copied."""
    syllables = rng.choice((2, 2, 3))
    parts = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(syllables)]
    return "".join(parts) + rng.choice(CODAS)


def person(rng: random.Random) -> str:
    return rng.choice(FIRST_NAMES) if rng.random() < 0.6 else made_up(rng).capitalize()


def some(rng: random.Random, words: tuple[str, ...], count: int) -> list[str]:
    """`count` different words in random order."""
    return rng.sample(words, count)


def listed(words: list[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
