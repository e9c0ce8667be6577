import json
from pathlib import Path

from test_controller import tools

from sweeper.core.events import Event
from sweeper.core.experiment import Experiment
from sweeper.execution.accounts import Accounts
from sweeper.execution.pool import LocalPool
from sweeper.execution.session import Opened, Prepared, run_session
from sweeper.store.writer import RunWriter
from sweeper.testing.launcher import FakeLauncher
from sweeper.testing.plans import small_fingerprint, small_plan, small_prompts


class Silent:
    def show(self, event: Event) -> None: ...

    def close(self) -> None: ...


async def test_what_the_doctor_only_warns_of_stands_in_the_journal_as_a_warning(tmp_path: Path) -> None:
    plan = small_plan(starts=1, repeats=1)
    prepared = Prepared(
        experiment=Experiment.model_validate(
            {
                "name": "small",
                "server": {"model_path": "toy"},
                "workload": {"max_tokens": 4, "num_prompts": 4},
            }
        ),
        plan=plan,
        prompts=small_prompts(),
        fingerprint=small_fingerprint(),
        skips=(),
        warnings=("doctor: 3-1-4: the head is upside down",),
    )
    writer = RunWriter.create(tmp_path, plan, experiment={}, environment={})
    opened = Opened(writer=writer, accounts=Accounts(plan), notes=("moved aside",), resumed=0)
    ended = await run_session(prepared, opened, LocalPool(tools(FakeLauncher())), Silent())
    assert ended.completed == 4
    journal = [json.loads(line) for line in (writer.path / "events.jsonl").read_text().splitlines()]
    told = [(line["level"], line["message"]) for line in journal if line["kind"] == "notice"]
    assert told == [("warning", "moved aside"), ("warning", "doctor: 3-1-4: the head is upside down")]
