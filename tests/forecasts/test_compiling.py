"""What the one who asks sees of a child that fails: one clear line for each way."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mpprof.cli import main
from mpprof.errors import MpprofError, UnableError, UsageError
from mpprof.forecasts import child as child_module
from mpprof.forecasts import compiling, rendering, targets
from mpprof.forecasts.judging import Compiled
from mpprof.report.to_json import to_json
from tests.forecasts.make_programs import CASES, stored

HAS_COMPILER = importlib.util.find_spec("jax_plugins") is not None
without = pytest.mark.skipif(HAS_COMPILER, reason="XLA's compiler for NVIDIA GPUs is installed here")
needed = pytest.mark.skipif(not HAS_COMPILER, reason="needs mpprof[forecast]: `make forecast-truth`")


def child(tmp_path: Path, script: str) -> str:
    """An interpreter that runs `script` in place of the child; $5 is its folder."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def ask(python: str, *, time_limit_s: float = 60.0, seen: list[str] | None = None) -> Compiled:
    phases = seen if seen is not None else []
    return compiling.compiled(
        "models:dense", targets.card("a100"), "float32", 8,
        time_limit_s=time_limit_s, progress=phases.append, python=python,
    )  # fmt: skip


SAYING = """echo '{"phase": "compiling"}'"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"{SAYING}; kill -FPE $$", r"XLA crashed with SIGFPE \(it was compiling\)"),
        (f"{SAYING}; echo oh no >&2; kill -ABRT $$", r"XLA crashed with SIGABRT \(it was compiling\): oh no"),
        (f"{SAYING}; kill -KILL $$", r"want of memory \(it was compiling\)"),
        ("echo it went wrong >&2; exit 1", r"failed \(it was starting\): it went wrong"),
    ],
)
def test_a_child_that_dies(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(UnableError, match=said) as raised:
        ask(child(tmp_path, script))
    assert "A100" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_child_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    python = child(tmp_path, f"{SAYING}; sleep 1000 & echo $! > {tmp_path}/pid; wait")
    with pytest.raises(UnableError, match=r"not compiled within 1 s \(it was compiling\).*--time-limit"):
        ask(python, time_limit_s=1.0)
    started = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{started}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_what_can_be_mended_is_a_usage_error_with_its_remedy(tmp_path: Path) -> None:
    wrong = json.dumps({"what": "models:dense is not compiled", "next": "Call model.compile()"})
    with pytest.raises(UsageError, match=r"is not compiled. Call model.compile"):
        ask(child(tmp_path, f"echo '{wrong}' > $5/error.json; exit 3"))


def test_a_card_that_xla_refuses_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpprof import forecast

    dense = next(case for case in CASES if case.name == "dense-a100-float32-64")

    def compiled(path: str, card: targets.Card, policy: str, *rest: object, **more: object) -> Compiled:
        if "T4" in card.name or policy == "mixed_bfloat16":
            raise UnableError(f"{card.name}, {policy}: XLA cannot compile this train step: UNIMPLEMENTED")
        return stored(dense)

    monkeypatch.setattr(compiling, "compiled", compiled)
    made = forecast("models:dense", ["a100", "t4"], policies=["mixed_bfloat16"])
    assert [run.card for run in made.runs] == ["NVIDIA A100-SXM4-40GB"]
    assert [(one.card, one.policy) for one in made.not_compiled] == [
        ("NVIDIA A100-SXM4-40GB", "mixed_bfloat16"), ("Tesla T4", "float32"), ("Tesla T4", "mixed_bfloat16"),
    ]  # fmt: skip
    assert "Tesla T4, float32: XLA cannot compile" in rendering.text(made)
    with pytest.raises(UnableError, match="UNIMPLEMENTED"):
        forecast("models:dense", ["t4"])


def test_the_largest_batch_is_searched_for_each_card_and_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpprof import forecast

    dense = stored(next(case for case in CASES if case.name == "dense-a100-float32-64"))
    asked: list[int] = []

    def compiled(path: str, card: targets.Card, policy: str, batch: int, **more: object) -> Compiled:
        asked.append(batch)
        need = (1 << 30) + batch * (16 << 20)
        remade = {name: {**one, "peak_bytes": need} for name, one in dense.result["programs"].items()}
        return Compiled({**dense.result, "batch_size": batch, "policy": policy, "programs": remade}, {
            **dense.programs, "own": dense.programs["own"] + (b"x.remat" if batch > 700 else b"")})  # fmt: skip

    monkeypatch.setattr(compiling, "compiled", compiled)
    monkeypatch.setattr("mpprof.forecasts.judging.launches", lambda proto: ())
    made = forecast("models:dense", ["t4"], batch_size=64, largest_batch=True)
    assert len(asked) == len(made.runs) * len(set(asked))
    for run in made.runs:
        found = run.largest_batch
        assert found.fits is not None
        assert found.too_large is not None
        assert 0.85 * 16 * 1024 < 1024 + found.fits * 16 <= 0.9 * 16 * 1024
        assert 16 * 1024 < 1024 + found.too_large * 16 < 1.1 * 16 * 1024
        assert found.recomputes is (found.fits > 700)
    text, document = rendering.text(made), to_json(made)
    assert f"{found.fits:,} to {found.too_large - 1:,}" in text
    assert "XLA computes activations a second time" in text
    assert document["runs"][0]["largest_batch"]["example_bytes"] == {"low": 16 << 20, "high": 16 << 20}
    plain = forecast("models:dense", ["t4"], batch_size=64)
    assert "largest batch" not in rendering.text(plain)
    assert to_json(plain)["runs"][0]["largest_batch"] is None


def test_no_largest_batch_is_searched_where_cudnn_would_run_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpprof import forecast

    lstm = stored(next(case for case in CASES if case.model == "recurrent"))
    monkeypatch.setattr(compiling, "compiled", lambda *asked, **more: lstm)
    made = forecast("models:recurrent", ["a100"], batch_size=16, largest_batch=True)
    assert {run.largest_batch for run in made.runs} == {None}
    assert "no largest batch is searched" in rendering.text(made)


def test_phases_are_passed_on_and_prints_of_the_model_are_not(tmp_path: Path) -> None:
    seen: list[str] = []
    with pytest.raises(MpprofError):
        ask(child(tmp_path, f"echo hello; {SAYING}; echo 3; exit 1"), seen=seen)
    assert seen == ["compiling"]


@pytest.mark.parametrize(
    ("model", "is_one"),
    [("models:dense", True), ("a.b.models:make.it", True), ("model.keras", False), ("C:/model.keras", False),
     ("models:", False)],
)  # fmt: skip
def test_a_function_is_told_from_a_file(model: str, is_one: bool) -> None:
    assert compiling.is_function(model) is is_one


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nofile.keras", "--card", "t4"], "nofile.keras: no such file"),
        (["models:dense", "--card", "h900"], "no card called 'h900' is known"),
        (["models:dense", "--card", ","], "--card ',' has no name in it"),
        (["models:dense", "--card", "t4", "--batch", "0"], "'0' is not a batch: give a whole number"),
        (["models:dense", "--card", "t4", "--input-shape", "a,b"], "is not a list of whole numbers"),
        (["https://host/model.keras", "--card", "t4"], "Keras loads models from files"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@without
@pytest.mark.framework
def test_without_the_extra_one_line_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", "tests.forecasts.models:dense", "--card", "t4"]) == 2
    error = capsys.readouterr().err
    assert "pip install 'mpprof[forecast]'" in error
    assert error.count("\n") == 1


# --- what the child refuses ---------------------------------------------------------------------------------


class Jax:
    __version__ = "0.10.2"


@pytest.mark.parametrize(
    ("plugin", "said", "next"),
    [
        (("", ""), "XLA's compiler for NVIDIA cards, which is not installed", "pip install 'mpprof[forecast]'"),
        (
            ("cuda13", "0.9.1"), "JAX is 0.10.2, and its CUDA plugin is 0.9.1: they must be the same",
            "pip install 'jax==0.9.1' or 'jax[cuda13-local]==0.10.2'",
        ),
        (("cuda12", "0.9.1"), "its CUDA plugin is 0.9.1", "'jax==0.9.1' or 'jax[cuda12-local]==0.10.2'"),
    ],
)  # fmt: skip
def test_a_compiler_that_is_not_there_or_of_another_version(
    monkeypatch: pytest.MonkeyPatch, plugin: tuple[str, str], said: str, next: str
) -> None:
    monkeypatch.setattr(child_module, "_plugin", lambda: plugin)
    with pytest.raises(child_module.Mendable) as raised:
        child_module._device(Jax, "")
    assert said in str(raised.value)
    assert next in raised.value.next


@pytest.mark.parametrize(
    ("cuda", "next"),
    [
        ("cuda13", "pip install 'mpprof[forecast-cuda12]', in an environment of its own"),
        ("cuda12", "pip install -U nvidia-cuda-nvcc-cu12, or CUDA 13's, 'mpprof[forecast]'"),
    ],
)
def test_without_an_assembler_the_other_cuda_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cuda: str, next: str
) -> None:
    class Lowered:
        def compile(self) -> Any:
            raise RuntimeError("no ptxas version takes sm_70")

    monkeypatch.setattr(child_module, "_plugin", lambda: (cuda, "0.10.2"))
    with pytest.raises(child_module.Mendable, match="no assembler") as raised:
        child_module._compiled(Lowered(), {}, tmp_path / "own.hlo", tmp_path)
    assert raised.value.next.startswith(next)


@pytest.mark.parametrize(
    ("asked", "function", "layers", "sets"),
    [
        ("float32", "float32", "float32", None),
        ("float32", "mixed_float16", "mixed_float16", "mixed_float16"),  # by keras.config
        ("float32", "float32", "mixed_float16", "mixed_float16"),  # layer by layer
        ("mixed_float16", "mixed_float16", "mixed_float16", None),
        ("mixed_float16", "mixed_float16", "float8_from_mixed_float16", None),  # by quantize("float8")
        ("float32", "float32", "float8_from_mixed_float16", "mixed_float16"),
    ],
)
def test_a_function_that_sets_its_own_policy_is_refused_under_another(
    asked: str, function: str, layers: str, sets: str | None
) -> None:
    """Its row would repeat that of its own policy; a saved model is built anew under each."""
    from tests.record.on_tensorflow import keras

    try:
        keras.config.set_dtype_policy(function)
        given: Any = [keras.layers.Dense(2, dtype=layers), keras.layers.Dense(2, dtype="float32")]
        made: Any = keras.Sequential([keras.Input((4,)), *given])  # a head in float32, as most have
        request = {"model": "project:build", "function": True, "policy": asked}
        if sets is None:
            child_module._check_policy(made, request)
        else:
            with pytest.raises(child_module.Mendable, match=f"sets its own policy, {sets}") as raised:
                child_module._check_policy(made, request)
            assert raised.value.unable
        if asked == "float32" and layers.startswith("float8"):  # which building a file anew leaves
            with pytest.raises(child_module.Mendable, match=f"sets its own policy, {sets}"):
                child_module._check_policy(made, {**request, "function": False})
        else:
            child_module._check_policy(made, {**request, "function": False})
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    "error", [MemoryError("cannot allocate 9 GB"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat: x")]
)
def test_too_little_memory_here_is_no_fault_of_the_question(error: Exception) -> None:
    with pytest.raises(child_module.Mendable, match="this machine has too little memory") as raised:
        child_module._refuse_if_out_of_memory(error)
    assert raised.value.unable
    assert "\n" not in str(raised.value)


def test_what_the_child_cannot_answer_names_card_and_policy(tmp_path: Path) -> None:
    wrong = json.dumps({"what": "this machine has too little memory", "next": "Free memory", "unable": True})
    with pytest.raises(UnableError, match=r"A100.*float32: this machine has too little memory. Free memory"):
        ask(child(tmp_path, f"echo '{wrong}' > $5/error.json; exit 3"))


# --- with the compiler -------------------------------------------------------------------------------------


@needed
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_stored_programs_are_what_is_compiled_today(case: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same operations and shares; with the versions of then also the same kernels and bytes."""
    monkeypatch.setenv("MPPROF_CACHE", "off")  # compiled now, not read back
    from mpprof.forecasts import judging
    from tests.forecasts.make_programs import Case, made

    assert isinstance(case, Case)
    now, then = made(case), stored(case)
    one, other = (judging.card_forecast(each, targets.card(case.card), None, None) for each in (now, then))
    assert one.model_flops == other.model_flops
    assert one.can_ratio == pytest.approx(other.can_ratio, abs=0.01)
    assert one.cannot_ratio == pytest.approx(other.cannot_ratio, abs=0.01)
    if now.result["versions"] == then.result["versions"]:
        for name, program in then.result["programs"].items():
            assert now.result["programs"][name]["temporaries_bytes"] == program["temporaries_bytes"]
            assert now.result["programs"][name]["kernels"] == program["kernels"]


@needed
@pytest.mark.parametrize(
    ("function", "said"),
    [("uncompiled", "is not compiled"), ("broken", "no such dataset"), ("nothing", "cannot be imported")],
)
def test_a_model_that_cannot_be_forecast(
    function: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forecast", f"tests.forecasts.models:{function}", "--card", "t4"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.framework
def test_a_saved_model_that_is_not_compiled_cannot_be_forecast(tmp_path: Path) -> None:
    from tests.forecasts.models import uncompiled
    from tests.record.on_tensorflow import keras

    path = str(tmp_path / "model.keras")
    uncompiled().save(path)
    asked = {"model": path, "function": False, "policy": "float32", "imports": (), "trust": False}
    with (
        pytest.raises(
            child_module.Mendable, match=r"model\.keras is not compiled: without optimizer"
        ) as raised,
        child_module._model(keras, asked),
    ):
        pass
    assert raised.value.next == "Call model.compile(optimizer, loss) before it is saved or returned"


@pytest.mark.parametrize("file", ["own.hlo", "programs.json"])
@pytest.mark.parametrize("damage", [b"", b"[]", b"\x0a\x03abc"])
def test_a_damaged_entry_of_the_cache_is_not_used(tmp_path: Path, file: str, damage: bytes) -> None:
    made, entry, again = tmp_path / "made", tmp_path / "cache" / "entry", tmp_path / "again"
    made.mkdir()
    again.mkdir()
    (made / "own.hlo").write_bytes(b"a compiled program")
    child_module._keep(entry, {"own": {"compile_ns": 1}}, made)
    assert child_module._kept(entry, again) == {"own": {"compile_ns": 1}}
    assert (again / "own.hlo").read_bytes() == b"a compiled program"
    (entry / file).write_bytes(damage)
    assert child_module._kept(entry, again) is None


@needed
def test_a_saved_model_is_the_same_as_the_function_that_built_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    path = tmp_path / "model.keras"
    code = f"from tests.forecasts.models import dense; dense().save({str(path)!r})"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**__import__("os").environ, "KERAS_BACKEND": "jax"}
    )
    from mpprof import forecast

    saved = forecast(str(path), ["a100"], batch_size=64)
    built = forecast("tests.forecasts.models:dense", ["a100"], batch_size=64)
    for one, other in zip(saved.runs, built.runs, strict=True):
        assert one.model_flops == other.model_flops
        assert one.memory == other.memory
        assert one.can_ratio == other.can_ratio
