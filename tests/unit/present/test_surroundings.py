"""The machine of a run, as the report's last section says it."""

from dataclasses import replace
from typing import Any

from sweeper.present.surroundings import environment_words
from sweeper.testing.runs import model_run


def words(**environment: Any) -> dict[str, str]:
    return dict(environment_words(replace(model_run(("3-1-4",), concurrency=(1,)), environment=environment)))


def test_bytes_are_gibibytes_and_yes_is_no_python_word() -> None:
    said = words(memory_bytes=25 * 2**30, sweeper={"version": "0.1.0", "git": {"commit": "abc", "dirty": True}})
    assert said["memory"] == "25.0 GiB"
    assert said["sweeper"] == "version 0.1.0, git commit abc, dirty yes"


def test_a_variable_that_would_fill_a_page_is_cut_and_says_so() -> None:
    long = "brand=tesla,driver>=535,driver<536 " * 60
    said = words(env={"NVIDIA_REQUIRE_CUDA": long, "CUDA_VERSION": "13.0.2"})["env"]
    assert len(said) < 200
    assert said.endswith("CUDA_VERSION 13.0.2") and "2,100 characters; environment.json has them all" in said


def test_what_is_absent_is_left_out() -> None:
    said = words(driver=None, gpus=[], gpu_problem=None, sweeper={"git": None})
    assert not {"driver", "gpus", "gpu problem", "sweeper"} & set(said)


def test_each_gpu_is_told_with_its_memory() -> None:
    gpu = {"index": 0, "name": "NVIDIA H200", "memory_bytes": 150754820096}
    assert words(gpus=[gpu])["gpus"] == "index 0, name NVIDIA H200, memory 140.4 GiB"
