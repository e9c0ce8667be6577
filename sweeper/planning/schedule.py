"""The order of server starts, and the slots on which they run."""

from collections.abc import Iterator, Sequence

from sweeper.core.trial import Arm, LaunchGroup, ServerStart


def schedule(
    groups: Sequence[LaunchGroup], arms: Sequence[Arm], *, starts: int, mirrored: bool
) -> tuple[ServerStart, ...]:
    """Every start in order. Mirrored: A B C, C B A, … so that drift cancels; `given`: A B C, A B C.

    With a single start a mirrored schedule runs each baseline before and after its arms: drift is at least seen.
    """
    if starts == 1 and mirrored:
        return tuple(_single_pass(groups, arms))
    order: list[ServerStart] = []
    for start in range(starts):
        backwards = mirrored and start % 2 == 1
        order.extend(ServerStart(group_id=g.group_id, start=start) for g in (reversed(groups) if backwards else groups))
    return tuple(order)


def _single_pass(groups: Sequence[LaunchGroup], arms: Sequence[Arm]) -> Iterator[ServerStart]:
    baseline_of = {arm.arm_id: arm.baseline_id for arm in arms}
    group_of = {group.arm_id: group.group_id for group in groups}
    block: list[LaunchGroup] = []
    for group in [*groups, None]:
        if block and (group is None or baseline_of[group.arm_id] != baseline_of[block[0].arm_id]):
            yield from (ServerStart(group_id=member.group_id, start=0) for member in block)
            if len(block) > 1:
                yield ServerStart(group_id=group_of[baseline_of[block[0].arm_id]], start=1)
            block = []
        if group is not None:
            block.append(group)


def slots(gpu_ids: Sequence[int], gpus_per_group: int) -> tuple[tuple[int, ...], ...]:
    """Disjoint sets of physical GPUs, neighbours together, each large enough for one server."""
    if gpus_per_group < 1:
        return ()
    whole = len(gpu_ids) // gpus_per_group
    return tuple(tuple(gpu_ids[i * gpus_per_group : (i + 1) * gpus_per_group]) for i in range(whole))
