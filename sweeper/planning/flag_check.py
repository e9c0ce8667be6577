"""Every engine flag of an experiment against the table of the engine that will get it."""

from collections.abc import Iterator, Mapping
from typing import Any

from sweeper.core.experiment import Experiment, SpecPoint
from sweeper.engine.argv import UNPREFIXED
from sweeper.engine.flags import FlagTable, size_of, wrong_value
from sweeper.engine.rules import known_algorithms, unknown_algorithm
from sweeper.planning.axes import server_sides
from sweeper.planning.marks import Key, Problem

OWN_FLAGS: Mapping[str, str] = {
    "model_path": "write it as server.model_path",
    "device": "write it as engine.device",
    "host": "Sweeper chooses it; remove it",
    "port": "Sweeper chooses it; remove it",
    "served_model_name": "Sweeper uses it to recognise its own server; remove it",
    "base_gpu_id": "Sweeper places servers on GPUs by CUDA_VISIBLE_DEVICES; remove it",
    "node_rank": "Sweeper sets it for each node; remove it",
    "dist_init_addr": "Sweeper sets it for each node; remove it",
    "config": "write its flags under server.args, so that they are part of the plan",
}
"""Flags that are not the user's to set in server.args."""

OWN_SPECULATIVE = {
    "algorithm": "algorithm",
    "draft_model_path": "draft_model_path",
    "num_steps": "configs",
    "eagle_topk": "configs",
    "num_draft_tokens": "configs",
}
"""speculative-* flags with a key of their own: where to write them instead."""


def flag_problems(experiment: Experiment, table: FlagTable, *, version: str | None = None) -> Iterator[Problem]:
    """(place, sentence) for every flag that this engine does not have or would not take with that value.

    `version`: the release planned for, where the table is of another one.
    """
    yield from _algorithm_problems(experiment, table, version or table.version)
    yield from _node_problems(experiment, table)
    for section, args in (("server", experiment.server.args), ("baseline", experiment.baseline.args)):
        for name, value in args.items():
            if problem := _server_flag_problem(name, value, table):
                yield (section, "args", name), problem
    yield from _speculative_problems(("speculative", "args"), experiment.speculative.args, table)
    for index, arm in enumerate(experiment.speculative.configs):
        if isinstance(arm, SpecPoint):
            yield from _speculative_problems(("speculative", "configs", index, "args"), arm.args, table)
    for dotted, values in experiment.sweep.items():
        section, _, name = dotted.partition(".args.")
        for value in values if name else []:
            check = _speculative_flag_problem if section == "speculative" else _server_flag_problem
            if problem := check(name, value, table):
                yield ("sweep", dotted), problem
                break


PLUGINS = "SGLANG_PLUGINS"
"""Variable that names the plugins an engine loads: algorithms of theirs are in no table."""


def _algorithm_problems(experiment: Experiment, table: FlagTable, version: str) -> Iterator[Problem]:
    flag = table.find("speculative_algorithm")
    known = known_algorithms(version, flag.choices if flag else ())
    if not known or PLUGINS in experiment.server.env or f"server.env.{PLUGINS}" in experiment.sweep:
        return
    for where, name in _named_algorithms(experiment):
        if str(name).upper() not in known:
            yield where, unknown_algorithm(str(name), known, version)


def _named_algorithms(experiment: Experiment) -> Iterator[tuple[Key, Any]]:
    """Where each stands; an arm that expects to fail may name what it likes."""
    yield ("speculative", "algorithm"), experiment.speculative.algorithm
    for index, arm in enumerate(experiment.speculative.configs):
        if isinstance(arm, SpecPoint) and arm.algorithm is not None and arm.expect is None:
            yield ("speculative", "configs", index, "algorithm"), arm.algorithm
    for name in experiment.sweep.get("speculative.algorithm", []):
        yield ("sweep", "speculative.algorithm"), name


def _node_problems(experiment: Experiment, table: FlagTable) -> Iterator[Problem]:
    """A server that spans `nnodes` nodes and can be placed on no cluster; 0.5.23, validation_hook.py:179 and :199."""
    named = [axis for axis in experiment.sweep if _is_nodes(axis.removeprefix("server.args."), table)]
    written = [name for name in experiment.server.args if _is_nodes(name, table)]
    if not named and not written:
        return
    where: Key = ("sweep", named[0]) if named else ("server", "args", written[0])
    for side in server_sides(experiment):
        found = {flag.key: value for name, value in side.server.args.items() if (flag := table.find(name)) is not None}
        nodes, ranks, replicas = (
            size_of(found.get("nnodes") or 1),
            (size_of(found.get("tp_size") or 1) or 0) * (size_of(found.get("pp_size") or 1) or 0),
            size_of(found.get("dp_size") or 1) or 0,
        )
        if nodes is None or nodes < 2:  # others are refused by their own line
            continue
        if ranks % nodes:
            yield where, f"{nodes} nodes cannot share tp_size × pp_size = {ranks} equally; make one a multiple"
            return
        if replicas > 1 and not found.get("enable_dp_attention"):
            yield where, f"SGLang runs no dp_size {replicas} over {nodes} nodes; use attn_dp_size, or remove nnodes"
            return


def _is_nodes(name: str, table: FlagTable) -> bool:
    return (flag := table.find(name)) is not None and flag.key == "nnodes"


def _server_flag_problem(name: str, value: Any, table: FlagTable) -> str | None:
    if name.startswith("speculative") or name in UNPREFIXED:
        return (
            f"speculation is not part of the baseline; write it as speculative.args.{name.removeprefix('speculative_')}"
        )
    flag = table.find(name)
    if flag is None:
        return table.unknown(name)
    if flag.key in OWN_FLAGS:
        return f"not a flag of yours; {OWN_FLAGS[flag.key]}"
    return wrong_value(flag, value)


def _speculative_problems(where: Key, args: Mapping[str, Any], table: FlagTable) -> Iterator[Problem]:
    for name, value in args.items():
        if problem := _speculative_flag_problem(name, value, table):
            yield (*where, name), problem


def _speculative_flag_problem(name: str, value: Any, table: FlagTable) -> str | None:
    short = name.removeprefix("speculative_")
    if short in OWN_SPECULATIVE:
        home = OWN_SPECULATIVE[short]
        return f"has a key of its own; write it in speculative.{home}"
    flag = table.find(short if short in UNPREFIXED else f"speculative_{short}")
    if flag is None:
        return table.unknown(f"speculative_{short}")
    return wrong_value(flag, value)
