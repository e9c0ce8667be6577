"""Sound drafts give silence, each fault gives its own finding and nothing else."""

from pathlib import Path

import pytest
from doctor_cases import DOCS, END, FAULTS, START, Fault, serious, table
from drafts import examine_draft
from sound_drafts import SOUND


@pytest.mark.parametrize("family", SOUND)
def test_a_sound_draft_gives_no_error_and_no_warning(family: str, tmp_path: Path) -> None:
    draft, algorithm = SOUND[family]
    diagnosis = examine_draft(tmp_path, draft, algorithm=algorithm)
    assert serious(diagnosis) == []
    assert len(diagnosis.excluded) >= 9


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.case}: {fault.what}")
def test_a_fault_gives_its_finding_and_no_other(fault: Fault, tmp_path: Path) -> None:
    found = serious(examine_draft(tmp_path, fault.draft, **fault.question))
    expected = [(fault.severity, fault.expected)] if fault.expected else []
    assert [(item.severity, item.code) for item in found] == expected


def test_the_table_in_the_docs_is_what_the_doctor_says_today(tmp_path: Path) -> None:
    written = DOCS.read_text().partition(START)[2].partition(END)[0].strip()
    assert written == table(tmp_path), "run `python tests/unit/doctor/doctor_cases.py`"
