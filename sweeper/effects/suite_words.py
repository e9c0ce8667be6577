"""The vocabulary of the built-in suites."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """A named value of a record: one of `choices`, or a whole number from `low` to `high`."""

    name: str
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """A kind of record."""

    singular: str
    plural: str
    fields: tuple[Field, ...]


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split(", "))


NAMES = _split(
    "Amara, Bruno, Chiara, Dario, Elif, Farid, Greta, Hanna, Ivo, Jonas, Keiko, Lena, Malik, Nadia, Otto, "
    "Priya, Quentin, Rosa, Samir, Tilda, Umar, Vera, Wanda, Yusuf, Zora"
)
CITIES = _split(
    "Aarhus, Bergen, Coimbra, Dresden, Esbjerg, Fribourg, Ghent, Haarlem, Innsbruck, Jena, Kaunas, Lucca, "
    "Malmö, Nantes, Oulu, Porto, Riga, Siena, Tartu, Uppsala, Varna, Zadar"
)
PLACES = _split(
    "a lighthouse, an old observatory, a night train, a mountain hut, a repair workshop, a harbour office, a "
    "botanical garden, a small library, a bakery before dawn, a weather station, a museum depot, a river "
    "ferry"
)
TOPICS = _split(
    "tides, bread, maps, clocks, bees, glass, bridges, migrating birds, old letters, snow, radio waves, "
    "mushrooms, chess, wind, paper, salt, lanterns, rope, mirrors, compost, bicycles, moss, telescopes"
)
ADVERBS = ("planned", "reported", "measured", "estimated", "final", "initial", "adjusted", "yearly", "daily", "hidden")

SENTENCES = (
    "In {year} a group around {name} began to work on {topic} in {city}.",
    "{other} kept a record of {number} observations in {place}.",
    "The first plan failed because nobody had asked the people who used {place} every day.",
    "A second attempt took {number} days longer than expected and cost less than feared.",
    "{name} wrote that {topic} had taught the town more than any lecture.",
    "By the end of the season {number} visitors had signed the book in {place}.",
    "The council of {city} discussed the matter twice and postponed it once.",
    "{other} disagreed and published figures that looked quite different.",
    "What was left over went to a school that still uses it for lessons about {topic}.",
    "Since then the anniversary is kept with a walk from {place} to the station.",
    "The tools were borrowed, the room was unheated, and the results were good.",
    "Only {number} pages of the original notes have survived.",
    "Visitors from {city} asked whether the method could be used elsewhere.",
    "{name} and {other} answered that it depended on the weather and on patience.",
    "A later study counted {number} cases and found the early estimate too low.",
    "In the winter of {year} the roof gave way, and the work moved to {place}.",
)

WORLDS = (
    World(
        "order",
        "orders",
        (
            Field("customer", NAMES),
            Field("city", CITIES),
            Field("quantity", low=1, high=60),
            Field("price_cents", low=150, high=98000),
            Field("status", ("open", "paid", "sent", "returned")),
        ),
    ),
    World(
        "flight",
        "flights",
        (
            Field("origin", CITIES),
            Field("destination", CITIES),
            Field("minutes", low=35, high=720),
            Field("passengers", low=12, high=410),
            Field("gate", ("A1", "A7", "B3", "B9", "C2", "C5")),
        ),
    ),
    World(
        "book",
        "books",
        (
            Field("author", NAMES),
            Field("subject", TOPICS),
            Field("pages", low=48, high=1200),
            Field("year", low=1890, high=2025),
            Field("shelf", ("north", "south", "east", "west")),
        ),
    ),
    World(
        "sensor",
        "sensors",
        (
            Field("location", PLACES),
            Field("unit", ("celsius", "percent", "pascal", "lux")),
            Field("reading", low=0, high=4000),
            Field("interval_s", low=1, high=3600),
        ),
    ),
    World(
        "player",
        "players",
        (
            Field("name", NAMES),
            Field("club", CITIES),
            Field("goals", low=0, high=44),
            Field("matches", low=1, high=60),
            Field("position", ("goal", "defence", "midfield", "attack")),
        ),
    ),
    World(
        "recipe",
        "recipes",
        (
            Field("cook", NAMES),
            Field("course", ("starter", "main", "dessert", "soup")),
            Field("minutes", low=5, high=240),
            Field("servings", low=1, high=12),
        ),
    ),
    World(
        "ticket",
        "tickets",
        (
            Field("owner", NAMES),
            Field("component", ("parser", "cache", "network", "report", "login")),
            Field("priority", low=1, high=5),
            Field("age_days", low=0, high=900),
        ),
    ),
    World(
        "invoice",
        "invoices",
        (
            Field("supplier", CITIES),
            Field("currency", ("EUR", "DKK", "CHF", "SEK", "PLN")),
            Field("amount_cents", low=900, high=2500000),
            Field("days_overdue", low=0, high=120),
        ),
    ),
    World(
        "plant",
        "plants",
        (
            Field("keeper", NAMES),
            Field("light", ("shade", "half shade", "sun")),
            Field("height_cm", low=4, high=310),
            Field("water_ml", low=20, high=2000),
        ),
    ),
    World(
        "machine",
        "machines",
        (
            Field("hall", ("north", "south", "east", "west")),
            Field("operator", NAMES),
            Field("hours", low=0, high=90000),
            Field("faults", low=0, high=75),
        ),
    ),
    World(
        "parcel",
        "parcels",
        (
            Field("sender", NAMES),
            Field("target", CITIES),
            Field("weight_g", low=40, high=31000),
            Field("distance_km", low=2, high=2900),
        ),
    ),
    World(
        "course",
        "courses",
        (
            Field("teacher", NAMES),
            Field("subject", TOPICS),
            Field("seats", low=6, high=240),
            Field("weeks", low=1, high=30),
            Field("room", PLACES),
        ),
    ),
)
