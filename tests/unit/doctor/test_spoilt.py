"""The spoilt drafts of the tutorial: each fault is named by the doctor, and what can be repaired is."""

from pathlib import Path

import pytest

from sweeper.doctor.examine import examine
from sweeper.doctor.repair import repair
from sweeper.effects.hub import local_checkpoint
from sweeper.toy.spoilt import SPOILT, write_spoilt

TARGET = local_checkpoint("toy:target")
NAMED = {"dropped-names": "weights-dropped", "absolute-d2t": "d2t-absolute-ids"}


def codes(draft: Path) -> list[str]:
    return [item.code for item in examine(draft, TARGET, version="0.5.23", algorithm="EAGLE3").errors]


@pytest.mark.parametrize("fault", NAMED)
def test_each_fault_is_named_and_the_repaired_copy_is_sound(fault: str, tmp_path: Path) -> None:
    write_spoilt(local_checkpoint("toy:draft"), tmp_path)
    assert codes(tmp_path / fault) == [NAMED[fault]]
    assert repair(tmp_path / fault, tmp_path / "mended", version="0.5.23")
    assert codes(tmp_path / "mended") == []


def test_ids_that_somebody_believed_are_possible_ids(tmp_path: Path) -> None:
    write_spoilt(local_checkpoint("toy:draft"), tmp_path)
    assert set(SPOILT) == {*NAMED, "wrong-ids"}
    assert codes(tmp_path / "wrong-ids") == [], "only the numbers and the dumps can tell"


def test_writing_twice_replaces_what_was_there(tmp_path: Path) -> None:
    draft = local_checkpoint("toy:draft")
    assert write_spoilt(draft, tmp_path) == write_spoilt(draft, tmp_path)
