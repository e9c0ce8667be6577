"""Little stories: the question names people and things, many sentences can tell each stage."""

import random

from sweeper.toy.texts.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    OBJECTS,
    PLACES,
    Exchange,
    article,
    person,
    some,
)

OPENINGS = (
    "{hero} lived near the {place} in {city} and looked after {an} {animal}.",
    "In {city}, beside the {adj} {place}, there lived a child called {hero} with {an} {animal}.",
    "Every morning {hero} walked through {city} to the {place}, and the {animal} came along.",
    "Nobody in {city} knew the {place} better than {hero}, except perhaps the {animal}.",
    "It was {an0} day in {city} when {hero} opened the door of the {place}.",
)
LOSSES = (
    "One evening the {adj2} {thing} was gone.",
    "Then {hero} noticed that somebody had taken the {adj2} {thing}.",
    "But that week the {adj2} {thing} stopped working, and nobody could say why.",
    "On Monday the {animal} ran away with the {adj2} {thing}.",
    "Suddenly a storm blew the {adj2} {thing} over the roof.",
)
SPEECHES = (
    '"Have you seen my {thing}?" asked {hero}. "No," said {friend}, "but I can help you look."',
    '"We must find the {thing} before night," said {friend}. {hero} nodded.',
    '{friend} laughed and said: "Remember, {a_thing} does not walk alone. Follow the {animal}!"',
    '"I saw a light behind the {place2}," whispered {friend}. "Let us go there."',
    '"Do not worry," said {friend}, "my aunt at the {place2} knows everything about {a_thing}."',
)
SEARCHES = (
    "So they went to the {place2} and looked under every {thing2}.",
    "They crossed the river, passed the {place2} and asked a man who carried {a_thing2}.",
    "The {animal} ran ahead to the {place2}, where {an3} {thing2} stood by the wall.",
    "At the {place2} they found only {an3} {thing2} and some footprints in the snow.",
    "First they searched the {place2}, then the {place}, and at last they sat down on {a_thing2}.",
    "Behind the {place2} a woman was painting {an3} {thing2}, and she pointed to the hill.",
)
TURNS = (
    "There, between two stones, something shone.",
    "Then {friend} heard a noise, and the {animal} began to dig.",
    "{hero} lifted the {thing2} and could hardly believe it.",
    "After an hour the rain stopped and they saw it at once.",
    "The {animal} would not move, so {hero} looked up into the tree.",
)
ENDINGS = (
    "The {thing} was back, a little wet but not broken. {hero} thanked {friend}, and they walked home.",
    "It was the {thing}! From that day on {hero} and {friend} were friends.",
    "{hero} carried the {thing} back to the {place}, and the {animal} slept beside it all night.",
    "So the {thing} came home, and in {city} people still tell how {friend} found it.",
    "{hero} gave the {thing2} to {friend}, kept the {thing}, and everybody was content.",
)
STAGES = (OPENINGS, LOSSES, SPEECHES, SEARCHES, SPEECHES, SEARCHES, TURNS, ENDINGS)


def stories(rng: random.Random) -> Exchange:
    cast, paragraphs = tell(rng)
    question = "Tell a story about {hero}, {friend} and the lost {thing}; it begins at the {place} in {city}."
    return Exchange(question.format(**cast), "\n\n".join(paragraphs))


def tell(rng: random.Random) -> tuple[dict[str, str], list[str]]:
    """The cast and the paragraphs of one story."""
    place, place2 = some(rng, PLACES, 2)
    thing, thing2 = some(rng, OBJECTS, 2)
    adjectives = some(rng, ADJECTIVES, 4)
    cast = {
        "hero": person(rng),
        "friend": person(rng),
        "city": rng.choice(CITIES),
        "animal": rng.choice(ANIMALS),
        "an": f"{article(adjectives[3])} {adjectives[3]}",
        "place": place,
        "place2": place2,
        "thing": thing,
        "thing2": thing2,
        "adj": adjectives[0],
        "adj2": adjectives[1],
        "an3": f"{article(adjectives[2])} {adjectives[2]}",
        "an0": f"{article(adjectives[0])} {adjectives[0]}",
        "a_thing": f"{article(thing)} {thing}",
        "a_thing2": f"{article(thing2)} {thing2}",
    }
    told: list[str] = []
    for stage in STAGES:
        told.append(rng.choice([s for s in stage if s not in told]))
    paragraphs = [" ".join(told[:2]), " ".join(told[2:4]), " ".join(told[4:6]), " ".join(told[6:])]
    return cast, [paragraph.format(**cast) for paragraph in paragraphs]
