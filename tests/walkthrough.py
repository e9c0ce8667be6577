"""Commands and their outputs out of a page of the docs, and a comparison that forgives what differs by machine."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NEEDS_A_SERVER = ("sweeper run", "sweeper diagnose run", "sweeper diagnose wiring")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One `$ command` with the output that the page shows; `…` stands for lines left out."""

    command: str
    output: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """Without `sweeper`."""
        return shlex.split(self.command)[1:]

    @property
    def needs_a_server(self) -> bool:
        return self.command.startswith(_NEEDS_A_SERVER)


def steps(page: Path = TUTORIAL) -> Iterator[Step]:
    for block in re.findall(r"```\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *output = part.rstrip().splitlines()
            yield Step(command=command, output=tuple(line for line in output if line.strip()))


def missing(step: Step, printed: str) -> list[str]:
    """Lines of the page that the command did not print in this order; numbers may be 10 % off, small ones more."""
    lines = iter([line for line in printed.splitlines() if line.strip()])
    return [wanted for wanted in step.output if wanted != "…" and not any(_alike(wanted, line) for line in lines)]


def _alike(wanted: str, line: str) -> bool:
    ours, theirs = (_NUMBER.split(" ".join(text.split())) for text in (wanted, line))
    if ours != theirs:
        return False
    pairs = zip(_NUMBER.findall(wanted), _NUMBER.findall(line), strict=True)
    return all(_near(float(a), float(b)) for a, b in pairs)


def _near(wanted: float, got: float) -> bool:
    """Below 1 stand distances near nothing, whose size is noise."""
    return abs(wanted - got) <= (0.5 if abs(wanted) < 1 else max(0.1 * abs(wanted), 0.05))
