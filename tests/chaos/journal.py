"""What a campaign has done so far, a line a fault, so that it can be cut and go on."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .campaign import Outcome
from .faults import Fault


class Journal:
    """Outcomes by their number in the campaign's list; without a path they are kept in memory only."""

    def __init__(self, path: Path | None, faults: Sequence[Fault]) -> None:
        """Raises ValueError when the file is of another list of faults: another seed, number, or older faults."""
        self._path = path
        self._faults = faults
        self.outcomes: dict[int, Outcome] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            number, value = json.loads(line)
            outcome = Outcome(**{**value, "leaked": tuple(value["leaked"])})
            if number >= len(faults) or faults[number].name != outcome.fault:
                raise ValueError(f"{path}: number {number + 1} is another fault now; use another file")
            self.outcomes[number] = outcome

    def left(self) -> list[int]:
        return [number for number in range(len(self._faults)) if number not in self.outcomes]

    def ordered(self) -> list[Outcome]:
        return [outcome for _, outcome in sorted(self.outcomes.items())]

    def add(self, number: int, outcome: Outcome) -> None:
        self.outcomes[number] = outcome
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps([number, asdict(outcome)]) + "\n")
