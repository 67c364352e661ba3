"""Model files that would run code, read other files or take all memory: each is refused, and nothing of it happens."""

from __future__ import annotations

import base64
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.cli import main
from mpprof.errors import MpprofError, UnreadableError
from mpprof.record.facts import described, model_file
from mpprof.record.facts.saved_model import loaded
from tests.record.on_tensorflow import keras

pytestmark = [pytest.mark.framework, pytest.mark.filterwarnings("ignore::UserWarning")]

layers = keras.layers
Object = dict[str, Any]
NO_ENTRY = "which was not imported"


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A file that is there once code of a model has run."""
    path = tmp_path / "trap"
    yield path
    assert not path.exists(), "the model's code was run"


def code(trap: Path) -> str:
    """A function as Keras 2 and 3 keep it in a file."""
    from keras.src.utils import python_utils

    made = eval(f"lambda x: (__import__('os').system('touch {trap}'), x)[1]")
    dumped: Any = python_utils.func_dump(made)
    return str(dumped["code"] if isinstance(dumped, dict) else dumped[0])


def of(module: str | None, name: str, config: Any = None, **more: Any) -> Object:
    return {"module": module, "class_name": name, "config": config or {}, "registered_name": None, **more}


def function(module: str, name: str) -> Object:
    return of(module, "function", name, registered_name=name)


def model(*inner: Object) -> Object:
    first = of("keras.layers", "InputLayer", {"batch_shape": [None, 4], "dtype": "float32"})
    return of("keras", "Sequential", {"name": "attack", "layers": [first, *inner]})


def as_keras(folder: Path, config: Any, version: str = "3.15.1") -> Path:
    path = folder / "attack.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": version}))
        archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
    return path


def as_hdf5(folder: Path, config: Object, version: str) -> Path:
    import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]  # comes with Keras

    path = folder / "attack.h5"
    with h5py.File(path, "w") as file:
        file.attrs.update(
            {"model_config": json.dumps(config), "keras_version": version, "backend": "tensorflow"}
        )
        file.create_group("model_weights")
    return path


def dense(**config: Any) -> Object:
    return of("keras.layers", "Dense", {"units": 4, **config})


def a_lambda(trap: Path) -> Object:
    return of("keras.layers", "Lambda", {"function": of(None, "__lambda__", {"code": code(trap)})})


def within(wrapper: str) -> Callable[[Path], Object]:
    return lambda trap: of("keras.layers", wrapper, {"layer": a_lambda(trap)})


ATTACKS: dict[str, tuple[Callable[[Path], Object], str]] = {
    "a Lambda layer": (a_lambda, "Lambda"),
    "one in TimeDistributed": (within("TimeDistributed"), "Lambda"),
    "one in Bidirectional": (within("Bidirectional"), "Lambda"),
    "one in a model": (lambda trap: model(a_lambda(trap)), "Lambda"),
    "code as an activation": (
        lambda trap: dense(activation=of(None, "__lambda__", {"value": code(trap)})), "Lambda",
    ),
    "a class of another module": (lambda trap: of("os", "system", {"command": f"touch {trap}"}), NO_ENTRY),
    "a function of another module": (lambda trap: dense(activation=function("os", "system")), NO_ENTRY),
    "a builtin function": (lambda trap: dense(activation=function("builtins", "eval")), NO_ENTRY),
    "a function that fetches files": (
        lambda trap: of("keras.layers", "Lambda", {
            "function": function("keras.utils", "get_file"), "arguments": {"origin": f"file://{trap}"},
        }), NO_ENTRY,
    ),
    "one by its inner name": (
        lambda trap: dense(activation=function("keras.src.utils.file_utils", "get_file")), NO_ENTRY,
    ),
    "a function that loads a model": (lambda trap: of("keras.models", "load_model", {}), NO_ENTRY),
    "a class that is not a layer": (lambda trap: of("keras.src.utils.file_utils", "Progbar"), NO_ENTRY),
    "a registered class": (lambda trap: dense() | {"class_name": "Evil", "registered_name": "a>Evil"}, NO_ENTRY),
    "a SavedModel": (lambda trap: of("keras.layers", "TFSMLayer", {"filepath": str(trap)}), "SavedModel"),
    "a pickle": (
        lambda trap: of("keras.layers", "TorchModuleWrapper", {"module": base64.b64encode(b"x").decode()}),
        "pickled",
    ),
    "JAX": (lambda trap: of("keras.layers", "JaxLayer", {"call_fn": "x"}), "JAX"),
    "Flax": (lambda trap: of("keras.layers", "FlaxLayer", {"module": "x"}), "Flax"),
    "another file": (
        lambda trap: of("keras.layers", "StringLookup", {"vocabulary": "/etc/passwd"}), "in another file",
    ),
    "a type of another module": (
        lambda trap: of("os", "__typespec__", [], spec_name="PathLike"), "a type of os",
    ),
    "a class without a name": (lambda trap: of("keras.layers", "Dense") | {"class_name": ["x"]}, "without a name"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_file_of_keras_3_may_not_name(tmp_path: Path, trap: Path, name: str) -> None:
    make, said = ATTACKS[name]
    with pytest.raises(UnreadableError, match=said), loaded(as_keras(tmp_path, model(make(trap)))):
        pass


def test_how_it_was_compiled_is_left_out_where_that_names_code(tmp_path: Path, trap: Path) -> None:
    config = model(dense())
    config["compile_config"] = {"optimizer": "sgd", "loss": of(None, "__lambda__", {"value": code(trap)})}
    with loaded(as_keras(tmp_path, config)) as made:
        assert getattr(made, "optimizer", None) is None
        assert made.count_params() == 20


KERAS_2: dict[str, tuple[Callable[[Path], Object], str]] = {
    "a Lambda layer": (
        lambda trap: {"class_name": "Lambda", "config": {
            "function": [code(trap), None, None], "function_type": "lambda", "module": "os",
        }}, "Lambda",
    ),
    "code of a cell's wrapper": (
        lambda trap: {"class_name": "RNN", "config": {"cell": {"class_name": "ResidualWrapper", "config": {
            "cell": {"class_name": "GRUCell", "config": {"units": 4}},
            "residual_fn": [code(trap), None, None], "residual_fn_type": "lambda",
        }}}}, "wrapper",
    ),
    "an op that writes": (
        lambda trap: {"class_name": "TFOpLambda", "config": {"name": "w", "function": "io.write_file"}}, "not an op",
    ),
    "a library of ops": (
        lambda trap: {"class_name": "TFOpLambda", "config": {"name": "w", "function": "load_op_library"}}, "not an op",
    ),
    "a function of Python": (
        lambda trap: {"class_name": "TFOpLambda", "config": {"name": "w", "function": "py_function"}}, "not an op",
    ),
    "an op's own graph": (
        lambda trap: {"class_name": "TensorFlowOpLayer", "config": {"node_def": "name: 'x'"}}, "as a graph",
    ),
    "a class of another module": (lambda trap: {"class_name": "system", "config": {"command": "x"}}, NO_ENTRY),
}  # fmt: skip


def sequential(inner: Object) -> Object:
    first = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 4], "dtype": "float32"}}
    return {"class_name": "Sequential", "config": {"name": "attack", "layers": [first, inner]}}


@pytest.mark.parametrize("name", KERAS_2)
def test_what_a_file_of_keras_2_may_not_name(tmp_path: Path, trap: Path, name: str) -> None:
    pytest.importorskip("tf_keras", reason="tf_keras is not installed")
    make, said = KERAS_2[name]
    path = as_hdf5(tmp_path, sequential(make(trap)), "2.15.0")
    with pytest.raises(UnreadableError, match=said), loaded(path):
        pass


def test_a_function_of_another_module_in_a_newer_file_of_keras_2(tmp_path: Path, trap: Path) -> None:
    """Keras 2 imports whatever module such a file names."""
    pytest.importorskip("tf_keras", reason="tf_keras is not installed")
    path = as_keras(tmp_path, model(dense(activation=function("posix", "system"))), "2.15.0")
    with pytest.raises(UnreadableError, match=NO_ENTRY), loaded(path):
        pass


def test_a_lambda_in_an_hdf5_file_of_keras_3(tmp_path: Path, trap: Path) -> None:
    inner = KERAS_2["a Lambda layer"][0](trap)
    with pytest.raises(UnreadableError, match="Lambda"), loaded(as_hdf5(tmp_path, sequential(inner), "3.0")):
        pass


# --- the commands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["audit"], pytest.param(["memory"], marks=pytest.mark.full), ["forecast", "--card", "a100"]],
    ids=lambda one: one[0],
)
def test_no_command_runs_the_code_of_keras_2(
    tmp_path: Path,
    trap: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nor what lies in the directory that it is called in, under the name of a library."""
    pytest.importorskip("tf_keras", reason="tf_keras is not installed")
    pytest.importorskip("jax", reason="JAX is not installed")
    here = tmp_path / "here"
    here.mkdir()
    for library in ("keras", "jax", "h5py"):
        (here / f"{library}.py").write_text(f"import os; os.system('touch {trap}'); raise SystemExit(9)")
    monkeypatch.chdir(here)
    monkeypatch.delenv("PYTHONPATH", raising=False)  # what the user names there is trusted
    path = as_hdf5(tmp_path, sequential(KERAS_2["a Lambda layer"][0](trap)), "2.15.0")
    assert main([command[0], str(path), *command[1:]]) == 2
    said = capsys.readouterr().err
    if (
        command[0] != "forecast" or "not installed" not in said
    ):  # it needs a compiler before it needs the model
        assert "a Lambda layer, whose code is not run from a file" in said
        assert "--trust" in said


@pytest.mark.usefixtures("looked_at_by_a_fork")
def test_code_runs_when_its_maker_is_trusted(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = as_keras(tmp_path, model(dense()))
    made = keras.Sequential([keras.Input((4,)), layers.Lambda(eval(
        f"lambda x: (__import__('os').system('touch {mark}'), x)[1]"
    )), layers.Dense(100)])  # fmt: skip
    made.save(path)
    mark.unlink()
    with pytest.raises(UnreadableError, match="Lambda"):
        mpprof.audit(path)
    assert not mark.exists()
    assert {note.code for note in mpprof.audit(path, trust=True).notes} == {"MP401"}
    assert mark.exists()


@pytest.mark.parametrize("command", [["audit"], ["memory", "--batch", "8"]], ids=lambda one: one[0])
def test_a_saved_model_is_code(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("saved_model.pb", "keras_metadata.pb"):
        (tmp_path / name).write_bytes(b"")
    assert main([*command, str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "a SavedModel holds code, which is not run" in said
    assert "--trust" in said


# --- what a file takes -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("looked_at_by_a_fork")
def test_the_weights_of_a_model_are_neither_read_nor_drawn(tmp_path: Path) -> None:
    """Of 12 GB of them, an audit takes nothing: what takes more than 4 GiB is ended."""
    path = as_keras(tmp_path, model(dense(units=750_000_000)))
    report = mpprof.audit(path, batch_size=1)
    assert report.memory
    assert report.memory[0].peak_bytes > 12e9


@pytest.mark.parametrize(
    ("limit", "value", "said"), [("MOST_BYTES", 32 << 20, "of memory"), ("LONGEST_S", 0.0, "more than 0 s")]
)
def test_what_takes_too_much_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, said: str
) -> None:
    monkeypatch.setattr(described, limit, value)
    with pytest.raises(MpprofError, match=said):
        mpprof.audit(as_keras(tmp_path, model(dense())))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (" " * (65 << 20), "more than 64 MiB"),
        ('{"a":' * 100_000, "not a whole model"),
        ("[]", "not a whole model"),
    ],
)
def test_a_description_without_end(tmp_path: Path, config: str, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        model_file.read(as_keras(tmp_path, config)).parts()


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_model_that_is_packed_as_none_is(tmp_path: Path, packing: int) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name in ("metadata.json", "config.json"):
            archive.writestr(name, "{}")
    with pytest.raises(UnreadableError, match="LZMA or bzip2"):
        model_file.read(path)


@pytest.mark.parametrize("damage", range(30, 62, 4))
def test_a_model_with_a_damaged_member(tmp_path: Path, damage: int) -> None:
    """zlib, zipfile and the tables of the file have errors of their own."""
    path = as_keras(tmp_path, {"config": list(range(200))})
    content = bytearray(path.read_bytes())
    start = content.index(b"config.json") + damage - 20
    content[start : start + 4] = b"\xff" * 4
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match="not a whole model"):
        model_file.read(path)


def test_another_file_that_an_hdf5_file_links_to_is_not_opened(tmp_path: Path) -> None:
    import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]  # comes with Keras

    path = as_hdf5(tmp_path, sequential({"class_name": "Dense", "config": {"units": 4}}), "3.0")
    with h5py.File(path, "a") as file:
        del file["model_weights"]
        for name in ("model_weights", "optimizer_weights"):
            file[name] = h5py.ExternalLink("/no/such/file", "/")
    with loaded(path) as made:
        assert made.count_params() == 20


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_a_models_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.keras")
    with pytest.raises(UnreadableError, match="is not a regular file"):
        model_file.check_kind(tmp_path / "m.keras")


def test_the_graph_of_many_layers_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras makes it anew with each layer, so that 5,000 took minutes."""
    built: list[int] = []
    build = keras.Sequential.build

    def counted(self: Any, *given: Any, **named: Any) -> None:
        built.append(len(self._layers))
        build(self, *given, **named)

    monkeypatch.setattr(keras.Sequential, "build", counted)
    inner = model(dense(name="first"), dense(name="second"))
    inner["config"]["name"] = "inner"
    path = as_keras(tmp_path, model(*(dense(name=f"d{at}") for at in range(20)), inner, dense(name="last")))
    with loaded(path) as made:
        assert made.count_params() == 23 * 20
        assert made.output_shape == (None, 4)
    assert built == [3, 23]


def nested(*, models: int, wrappers: int) -> Object:
    found = dense()
    for at in range(wrappers):
        found = of("keras.layers", "TimeDistributed", {"name": f"w{at}", "layer": found})
    for at in range(models):
        found = model(found)
        found["config"]["name"] = f"m{at}"
    return found


@pytest.mark.parametrize(("models", "wrappers"), [(33, 0), (1, 64), (5_000, 0)])
def test_layers_that_lie_in_one_another_too_deep(tmp_path: Path, models: int, wrappers: int) -> None:
    text = json.dumps(nested(models=min(models, 100), wrappers=wrappers))
    text = text if models < 100 else '{"class_name":' * models + "1" + "}" * models
    said = "more than 32 deep" if models < 100 else "not a whole model"
    with pytest.raises(UnreadableError, match=said), loaded(as_keras(tmp_path, text)):
        pass


def test_as_many_models_in_one_another_as_a_layers_path_has_parts(tmp_path: Path) -> None:
    with loaded(as_keras(tmp_path, nested(models=32, wrappers=0))) as made:
        assert made.count_params() == 20


@pytest.mark.full
def test_a_chain_longer_than_pythons_stack(tmp_path: Path) -> None:
    report = mpprof.audit(as_keras(tmp_path, model(*(dense(name=f"d{at}") for at in range(1_500)))))
    assert report.layers == 1_501
