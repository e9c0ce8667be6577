import pytest

from sweeper.engine.devices import physical_ids, visible_devices
from sweeper.engine.ports import port_block, port_collisions
from sweeper.errors import PreflightError


def test_the_child_sees_only_its_gpus_by_physical_id() -> None:
    assert visible_devices([2, 3], given="0,1,2,3", needed=2) == "2,3"
    assert visible_devices([5, 1], given=None, needed=2) == "5,1"


def test_an_empty_variable_means_that_this_task_owns_no_gpu() -> None:
    with pytest.raises(PreflightError, match=r"owns no GPU.*RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"):
        visible_devices([0], given="", needed=1)


def test_gpus_outside_of_what_the_job_was_given_are_refused() -> None:
    with pytest.raises(PreflightError, match="GPU 0,1 lies outside"):
        visible_devices([0, 1], given="6,7", needed=2)


def test_the_parallel_sizes_must_match_the_gpus() -> None:
    with pytest.raises(PreflightError, match=r"needs 8 GPU.*3 given"):
        visible_devices([4, 5, 6], given="4,5,6,7", needed=8)


def test_the_same_gpu_twice_is_refused() -> None:
    with pytest.raises(PreflightError, match="twice"):
        visible_devices([1, 1], given=None, needed=2)


def test_a_variable_of_uuids_is_understood() -> None:
    uuids = {0: "GPU-aaaa-1", 1: "GPU-bbbb-2"}
    assert visible_devices([1], given="GPU-bbbb", needed=1, uuids=uuids) == "1"
    with pytest.raises(PreflightError, match="GPU-cccc, which is no GPU of this node"):
        visible_devices([1], given="GPU-cccc", needed=1, uuids=uuids)


@pytest.mark.parametrize("word", ["²", "--1"])
def test_what_only_looks_like_a_number_is_no_gpu(word: str) -> None:
    with pytest.raises(PreflightError, match="which is no GPU of this node"):
        visible_devices([1], given=word, needed=1)


def test_ray_names_gpus_as_the_variable_does_by_number_or_uuid() -> None:
    def uuids() -> dict[int, str]:
        return {0: "GPU-aaaa-1", 1: "GPU-bbbb-2", 2: "GPU-cccc-3"}

    assert physical_ids(["GPU-cccc-3", "GPU-bbbb"], uuids) == (1, 2)
    assert physical_ids(["5", "4"], lambda: pytest.fail("numbers need no look at the GPUs")) == (4, 5)
    assert physical_ids([], uuids) == ()
    with pytest.raises(PreflightError, match="MIG-1, which is no GPU of this node"):
        physical_ids(["MIG-1"], uuids)


def test_a_cpu_server_sees_none() -> None:
    assert visible_devices([], given="", needed=0) == ""


def test_dp_attention_opens_seven_more_ports_above() -> None:
    assert port_block(31000, dp_attention=True) == (31000, 26000, *range(31233, 31240))


def test_a_server_without_dp_attention_opens_two_ports() -> None:
    assert port_block(31000) == (31000, 26000)


def test_past_the_last_port_the_block_goes_down() -> None:
    assert port_block(65500, dp_attention=True)[2:] == tuple(range(65267, 65274))


def test_collisions_with_derived_ports_are_named() -> None:
    blocks = {"a": port_block(31000, dp_attention=True), "b": port_block(31235), "c": port_block(31001)}
    assert port_collisions(blocks) == ("b and a would both open port 31235",)
