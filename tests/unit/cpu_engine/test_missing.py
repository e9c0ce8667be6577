"""What the stand-in lacks is named; what SGLang probes for is answered honestly."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sgl_kernel
import torch

ENGINE = Path(sgl_kernel.__file__).parents[1]


def run(code, *paths, **env):
    """A fresh interpreter with the stand-in (and paths after it) on PYTHONPATH."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, (ENGINE, *paths))), **env}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def test_an_unknown_op_is_named():
    with pytest.raises(AttributeError, match=r"torch\.ops\.sgl_kernel\.fused_experts_cpu is not provided by Sweeper"):
        torch.ops.sgl_kernel.fused_experts_cpu  # noqa: B018


def test_probes_answer_no_for_unknown_ops_and_yes_for_provided_ones():
    assert not hasattr(torch.ops.sgl_kernel, "fused_qk_norm_cpu")
    assert not hasattr(sgl_kernel, "fused_experts")
    assert hasattr(torch.ops.sgl_kernel, "convert_weight_packed")


def test_ops_are_registered_with_schemas():
    schema = torch._C._get_schema("sgl_kernel::fused_add_rmsnorm_cpu", "")
    assert [argument.is_write for argument in schema.arguments] == [True, True, False, False]


@pytest.mark.parametrize("name", [name for name in sgl_kernel.__all__ if name.endswith("_cpu")])
def test_a_schema_lists_the_arguments_that_the_short_way_takes(name):
    """SGLang's calls do not pass the dispatcher, so nothing else would notice that the two differ."""
    short = getattr(torch.ops.sgl_kernel, name)
    assert short is getattr(sgl_kernel, name)
    schema = torch._C._get_schema(f"sgl_kernel::{name}", "")
    assert [argument.name for argument in schema.arguments] == list(inspect.signature(short).parameters)


def test_an_op_that_goes_through_the_dispatcher_does_the_same():
    x, weight = torch.randn(3, 8), torch.rand(8)
    registered, _ = torch._C._jit_get_operation("sgl_kernel::rmsnorm_cpu")
    assert torch.equal(registered(x, weight, 1e-5), torch.ops.sgl_kernel.rmsnorm_cpu(x, weight, 1e-5))


@pytest.mark.parametrize("statement", ["from sgl_kernel import moe_sum", "import sgl_kernel.mamba"])
def test_an_unknown_import_is_named(statement):
    with pytest.raises(ImportError, match=r"sgl_kernel\.(moe_sum|mamba) is not provided by Sweeper's CPU engine"):
        exec(statement)


def test_ops_that_other_models_look_up_at_import_fail_when_called():
    with pytest.raises(NotImplementedError, match="flash_attn_varlen_func is not provided"):
        torch.ops.sgl_kernel.flash_attn_varlen_func(1, key=2)


def test_torch_reports_amx_only_when_the_engine_is_asked_for():
    code = "import sys; assert 'torch' not in sys.modules; import torch; print(torch.cpu._is_amx_tile_supported())"
    assert run(code, SGLANG_USE_CPU_ENGINE="1").stdout == "True\n"
    plain = run("import sys; print(any(type(f).__module__ == 'sitecustomize' for f in sys.meta_path))")
    assert plain.stdout == "False\n"


def test_flashinfer_is_found_but_not_imported():
    code = """
from importlib.util import find_spec
assert find_spec("flashinfer") is not None
try:
    import flashinfer
except ImportError as error:
    print(error)
"""
    assert "flashinfer is not used by Sweeper's CPU engine" in run(code, SGLANG_USE_CPU_ENGINE="1").stdout


@pytest.mark.parametrize("env", [{}, {"SGLANG_USE_CPU_ENGINE": "1"}])
def test_a_shadowed_sitecustomize_still_runs(tmp_path, env):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.shadowed = 42\n")
    assert run("print(shadowed)", tmp_path, **env).stdout == "42\n"


def engine_of_version(folder, version):
    info = folder / f"sglang-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    return folder


def test_an_untested_engine_is_named_once_in_a_server(tmp_path):
    again = "subprocess.run([sys.executable, '-c', 'import sgl_kernel'], check=True)"
    code = f"import sgl_kernel, subprocess, sys; {again}"
    stderr = run(code, engine_of_version(tmp_path, "9.9.9")).stderr
    assert stderr.count("is tested with SGLang 0.5.23; this is 9.9.9") == 1


def test_the_tested_engine_gives_no_warning(tmp_path):
    assert "tested" not in run("import sgl_kernel", engine_of_version(tmp_path, "0.5.23")).stderr
