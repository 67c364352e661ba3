"""Compile one train step for one card: `python -m mpprof.forecasts.child REQUEST.json FOLDER`.

Runs alone: the process that asks imports no framework, and a crash of the compiler ends this process only.
Keras runs on JAX here, on the CPU, and XLA compiles for the card that the request describes. Writes into
FOLDER `result.json`, and for each program (`source`, before any optimisation; `own`, with XLA's own products;
`library`, with the libraries') NAME.hlo, an HloProto. What the user can mend is written to `error.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from mpprof import child
from mpprof.forecasts import dumped
from mpprof.tensors import HALF

PROGRAMS: dict[str, dict[str, Any]] = {"own": {}, "library": {"xla_gpu_enable_triton_gemm": False}}
"""XLA's options of each program. Which of the two a card runs is decided on the card, by timing both."""

_CUDNN = 91000
"""The version of cuDNN that the target has, as `targets` describes it."""


class Mendable(Exception):
    """What the one who asked can mend; `next` says how. `unable`: nothing about the question is wrong, this
    card or this machine cannot answer it."""

    def __init__(self, what: str, next: str = "", *, unable: bool = False) -> None:
        super().__init__(what)
        self.next, self.unable = next, unable


def main(request_path: str, out: str) -> int:
    folder = Path(out)
    request = json.loads(Path(request_path).read_text())
    child.end_with_parent(request["parent"])
    dump = folder / "dump"
    os.environ.update(
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        TF_CPP_MIN_LOG_LEVEL="3",
        XLA_FLAGS=f"--xla_gpu_autotune_level=0 --xla_dump_to={dump} --xla_dump_hlo_as_text "
        f"--xla_dump_hlo_module_re={dumped.MODULE}",
    )
    try:
        result = _forecast(request, folder, dump)
    except Mendable as error:
        stated = {"what": str(error), "next": error.next, "unable": error.unable}
        (folder / "error.json").write_text(json.dumps(stated))
        return 3
    (folder / "result.json").write_text(json.dumps(result))
    return 0


def _forecast(request: dict[str, Any], folder: Path, dump: Path) -> dict[str, Any]:
    started = time.perf_counter_ns()
    _say("loading Keras and JAX")
    keras, jax = _frameworks()
    target = tuple(request["compute_capability"])
    device = _device(jax, request["target"])
    recurrent: list[str] = []
    _say("building the model")
    with _as_on(target, recurrent), _model(keras, request) as model:
        batch = request["batch_size"]
        inputs, outputs = _data(keras, model, batch, request["input_shapes"])
        _say("tracing the train step")
        lowered = _lowered(jax, model, inputs, outputs, device)
    source = dumped.hlo_proto(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    (folder / "source.hlo").write_bytes(source)
    built = time.perf_counter_ns()
    programs = _kept_or_compiled(lowered, source, request, folder, dump)
    return {
        "policy": request["policy"],
        "model": _facts(model),
        "versions": {"keras": keras.__version__, "jax": jax.__version__, "xla": _plugin()[1]},
        "source_sha256": hashlib.sha256(source).hexdigest(),
        "build_ns": built - started,
        "recurrent_layers": _recurrent_layers(keras, model) if recurrent else [],
        "programs": programs,
        "parameters_bytes": _bytes(model.trainable_variables + model.non_trainable_variables),
        "slots_bytes": _bytes(model.optimizer.variables),
        "inputs": [[list(s.shape), str(s.dtype)] for s in jax.tree_util.tree_leaves((inputs, outputs))],
    }


# --- the frameworks ----------------------------------------------------------------------------------------


def _frameworks() -> tuple[Any, Any]:
    try:
        import jax
        import keras
    except ImportError as error:
        raise Mendable(
            f"forecast needs Keras on JAX, and {error.name or error} is not installed",
            "pip install 'mpprof[forecast]'",
        ) from error
    return keras, jax


def _plugin() -> tuple[str, str]:
    """Return the CUDA that XLA's compiler is for, "cuda12" or "cuda13", and its version; empty: there is
    none."""
    from importlib import metadata

    for cuda in ("cuda13", "cuda12"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return cuda, metadata.version(f"jax-{cuda}-pjrt")
    return "", ""


def _device(jax: Any, target: str) -> Any:
    """Return the described card, as a device that programs can be compiled for."""
    cuda, version = _plugin()
    if not version:
        raise Mendable(
            "forecast needs XLA's compiler for NVIDIA cards, which is not installed",
            "pip install 'mpprof[forecast]'",
        )
    if version != jax.__version__:
        raise Mendable(
            f"JAX is {jax.__version__}, and its CUDA plugin is {version}: they must be the same",
            f"pip install 'jax=={version}' or 'jax[{cuda}-local]=={jax.__version__}'",
        )
    from jax.experimental import topologies

    try:
        description = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=target)
    except Exception as error:
        raise Mendable(f"XLA does not take the description of the card: {_first_line(error)}") from error
    return description.devices[0]


@contextlib.contextmanager
def _as_on(target: tuple[int, int], recurrent: list[str]) -> Iterator[None]:
    """Patch Keras so that it gets the target's answers where it asks this machine what the card can do.

    Attention takes cuDNN's fused kernel from compute capability 8.0 on. Recurrent layers would take cuDNN's
    on a GPU, which cannot be lowered here: that they asked is noted in `recurrent`."""
    from jax._src.cudnn import fused_attention_stablehlo as fused

    rnn: Any = importlib.import_module("keras.src.backend.jax.rnn")  # the package has a function of that name
    kept = {name: getattr(fused, name) for name in _ASKED if hasattr(fused, name)}
    available = getattr(rnn, "_is_gpu_available", None)

    def asked() -> bool:
        recurrent.append("cudnn")
        return False

    answers = {
        "check_cudnn_version": lambda: _CUDNN,
        "check_compute_capability": lambda least: target >= _version(least),
        "is_cuda_compute_capability_equal": lambda one: target == _version(one),
    }
    try:
        for name in kept:
            setattr(fused, name, answers[name])
        if available is not None:
            rnn._is_gpu_available = asked
        yield
    finally:
        for name, value in kept.items():
            setattr(fused, name, value)
        if available is not None:
            rnn._is_gpu_available = available


_ASKED = ("check_cudnn_version", "check_compute_capability", "is_cuda_compute_capability_equal")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


# --- the model ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _model(keras: Any, request: dict[str, Any]) -> Iterator[Any]:
    """Give the compiled model under the policy of the request."""
    try:
        keras.config.set_dtype_policy(request["policy"])
    except ValueError as error:
        raise Mendable(
            f"{request['policy']!r} is not a dtype policy of Keras",
            "Take float32, mixed_float16, mixed_bfloat16, float16 or bfloat16",
        ) from error
    keras.utils.set_random_seed(0)
    with contextlib.ExitStack() as stack:
        with _without_drawing(keras):
            model = _called(request) if request["function"] else _loaded(request, stack)
        _check_trainable(model, request)
        yield model


def _check_trainable(model: Any, request: dict[str, Any]) -> None:
    if not hasattr(model, "train_step"):
        raise Mendable(
            f"{request['model']} returned {type(model).__name__}, which is not a Keras model",
            "Return a compiled keras.Model",
        )
    _check_policy(model, request)
    if getattr(model, "optimizer", None) is None:
        raise Mendable(
            f"{request['model']} is not compiled: without optimizer and loss there is no train step",
            "Call model.compile(optimizer, loss) before it is saved or returned",
        )


def _check_policy(model: Any, request: dict[str, Any]) -> None:
    """Refuse a policy that a function does not build under: its row would repeat another's. Under float32 one
    layer of another policy is enough: that row would be no baseline. A file is built anew under each policy
    but for its quantised layers."""
    import keras

    wanted, now = request["policy"], keras.config.dtype_policy().name
    weighted = [layer for layer in model._flatten_layers() if layer is not model and layer.weights]
    names = {layer.dtype_policy.name for layer in weighted}
    if not request["function"]:
        names, now = {name for name in names if "_from_" in name}, wanted
    own = {name.rpartition("_from_")[2] for name in names}  # float8_from_mixed_bfloat16
    others = sorted(own - {wanted})
    if now != wanted or (own and wanted not in own) or (wanted == "float32" and others):
        sets = now if now != wanted else ", ".join(others)
        raise Mendable(
            f"{request['model']} sets its own policy, {sets}: this row would repeat that one",
            f"Leave the policy out of the function: each is set before it is called, or name it: "
            f"--dtype-policy {sets.replace(', ', ',')}",
            unable=True,
        )


@contextlib.contextmanager
def _without_drawing(keras: Any) -> Iterator[None]:
    """Patch random initialisers to give zeros. Initial values do not matter here, and drawing them compiles a
    program for each shape."""
    from keras.src.initializers import random_initializers

    base = random_initializers.RandomInitializer
    subclasses = [
        c for c in vars(random_initializers).values() if isinstance(c, type) and issubclass(c, base)
    ]
    kept = {c: c.__dict__["__call__"] for c in subclasses if "__call__" in c.__dict__}

    def zeros(self: Any, shape: Any, dtype: Any = None) -> Any:
        return keras.ops.zeros(shape, dtype=dtype)

    for kind in kept:
        kind.__call__ = zeros  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, call in kept.items():
            kind.__call__ = call  # type: ignore[method-assign]


def _called(request: dict[str, Any]) -> Any:
    sys.path.insert(0, os.getcwd())
    module_name, function = request["model"].split(":", 1)
    try:
        found: Any = importlib.import_module(module_name)
        for part in function.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise Mendable(
            f"{request['model']} cannot be imported: {_named(error)}",
            "Give module:function, importable from this directory",
        ) from error
    try:
        return found()
    except (Exception, SystemExit) as error:
        _refuse_if_out_of_memory(error)
        raise Mendable(
            f"{request['model']}() failed on Keras' JAX backend: {_named(error)}",
            "forecast compiles with XLA through JAX: the model must build with KERAS_BACKEND=jax",
        ) from error


def _loaded(request: dict[str, Any], stack: contextlib.ExitStack) -> Any:
    """Return a saved model, rebuilt under another policy: each layer of the model's own policy, or of another
    in 16 bits, gets the new one; a float32 layer among those (an output) keeps its own. Until the stack ends,
    variables have no values."""
    from mpprof.errors import MpprofError
    from mpprof.record.facts.saved_model import loaded

    try:
        saved = stack.enter_context(
            loaded(Path(request["model"]), request["imports"], trust=request["trust"])
        )
    except MpprofError as error:
        where = "" if request["model"] in error.what else f"{request['model']}: "
        raise Mendable(f"{where}{error.what}", error.next) from error
    settings = saved.get_compile_config() if getattr(saved, "optimizer", None) is not None else None
    if settings is None:
        return saved
    # A model under mixed_float16 is saved with its optimizer already wrapped.
    optimizer = settings["optimizer"]
    if optimizer.get("class_name") == "LossScaleOptimizer":
        settings["optimizer"] = optimizer["config"]["inner_optimizer"]
    config = _with_policy(saved.get_config(), _policies_of(saved), request["policy"])
    model = type(saved).from_config(config)
    if not model.built and saved.built:
        model.build(saved.input_shape)
    model.compile_from_config(settings)
    return model


def _policies_of(model: Any) -> set[str]:
    """Return the policy of most of the model's layers, the one that the model was built under, and all others
    in 16 bits."""
    names = [layer.dtype_policy.name for layer in model._flatten_layers() if layer is not model]
    main = max(set(names), key=names.count) if names else str(model.dtype_policy.name)
    return {main, *(name for name in names if name.removeprefix("mixed_") in HALF)}


def _with_policy(config: Any, old: Set[str], new: str) -> Any:
    if isinstance(config, dict):
        if config.get("class_name") in ("DTypePolicy", "FloatDTypePolicy"):
            name = config.get("config", {}).get("name")
            return {**config, "config": {**config["config"], "name": new if name in old else name}}
        return {key: _with_policy(value, old, new) for key, value in config.items()}
    if isinstance(config, list):
        return [_with_policy(value, old, new) for value in config]
    return config


def _data(keras: Any, model: Any, batch: int, stated: Sequence[Sequence[int]] | None) -> tuple[Any, Any]:
    """Return the shapes and types of a batch: of the inputs, and of the targets that the loss takes."""
    import jax

    if getattr(model, "inputs", None):
        symbolic = list(model.inputs)
        shapes = [list(tensor.shape[1:]) for tensor in symbolic]
        dtypes = [str(tensor.dtype) for tensor in symbolic]
    elif stated:
        shapes, dtypes = [list(shape) for shape in stated], ["float32"] * len(stated)
    else:
        raise Mendable(
            "the model does not state the shape of its input", "Give --input-shape, without the batch"
        )
    if stated:
        if len(stated) != len(shapes):
            raise Mendable(f"{len(stated)} input shapes for a model of {len(shapes)} inputs")
        shapes = [list(shape) for shape in stated]
    if any(size is None for shape in shapes for size in shape):
        raise Mendable(
            f"a dimension of the input {tuple(shapes[0])} is not fixed",
            "Give --input-shape, without the batch",
        )
    specs = [
        jax.ShapeDtypeStruct((batch, *shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    inputs: Any = specs[0] if len(specs) == 1 else specs
    if (
        getattr(model, "inputs", None)
        and len(specs) > 1
        and isinstance(getattr(model, "_inputs_struct", None), dict)
    ):
        inputs = dict(zip(model._inputs_struct, specs, strict=True))
    try:
        predicted = model.compute_output_spec(_as_keras(keras, inputs))
    except Exception as error:
        raise Mendable(f"the model cannot be called on its input: {_first_line(error)}") from error
    return inputs, _targets(jax, model, predicted)


def _as_keras(keras: Any, specs: Any) -> Any:
    return keras.tree.map_structure(lambda s: keras.KerasTensor(s.shape, dtype=str(s.dtype)), specs)


def _targets(jax: Any, model: Any, predicted: Any) -> Any:
    """Return the shapes and types of the targets. A sparse loss takes one class index where the others take a
    value for each output."""
    import keras

    flat = keras.tree.flatten(predicted)
    losses = (
        keras.tree.flatten(getattr(model._compile_loss, "_user_loss", None)) if model._compile_loss else []
    )
    losses = losses if len(losses) == len(flat) else losses[:1] * len(flat)

    def target(output: Any, loss: Any) -> Any:
        name = loss if isinstance(loss, str) else getattr(loss, "name", None) or type(loss).__name__
        if "sparse" in str(name).lower():
            return jax.ShapeDtypeStruct(tuple(output.shape[:-1]), "int32")
        return jax.ShapeDtypeStruct(tuple(output.shape), "float32")

    made = [target(output, loss) for output, loss in zip(flat, losses or [None] * len(flat), strict=True)]
    return keras.tree.pack_sequence_as(predicted, made)


def _lowered(jax: Any, model: Any, inputs: Any, outputs: Any, device: Any) -> Any:
    """Return the train step with optimizer and loss scaling, lowered for the card."""
    import numpy as np
    from jax.sharding import SingleDeviceSharding

    there = SingleDeviceSharding(device)

    def example(spec: Any) -> Any:
        """Return a batch that takes no memory: only its shape and type are looked at."""
        return np.broadcast_to(np.zeros((), spec.dtype), spec.shape)

    def place(spec: Any) -> Any:
        return jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=there)

    try:
        model._symbolic_build(data_batch=jax.tree_util.tree_map(example, (inputs, outputs)))
        groups = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
        state = tuple([place(variable) for variable in group] for group in groups)
        data = jax.tree_util.tree_map(place, (inputs, outputs))

        def train_step(state: Any, data: Any) -> Any:
            return model.train_step(state, data)  # named so: the dump is filtered by it

        traced = jax.jit(train_step, donate_argnums=0).trace(state, data)
        return traced.lower(lowering_platforms=("cuda",))
    except Exception as error:
        _refuse_if_out_of_memory(error)
        raise Mendable(
            f"the train step cannot be traced on JAX: {_named(error)}",
            "forecast compiles with XLA through JAX: the model must train with KERAS_BACKEND=jax",
        ) from error


def _recurrent_layers(keras: Any, model: Any) -> list[str]:
    kinds = (keras.layers.LSTM, keras.layers.GRU)
    return [layer.name for layer in model._flatten_layers() if isinstance(layer, kinds)]


def _facts(model: Any) -> dict[str, Any]:
    """Return the model as a run's record describes it."""
    from mpprof.record.facts.layers import model_facts
    from mpprof.store import formats

    made: dict[str, Any] = formats.plain(model_facts(model, written=True))
    return made


def _bytes(variables: Sequence[Any]) -> int:
    import numpy as np

    sizes = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
    return sum(
        int(np.prod(v.shape)) * (sizes.get(str(v.dtype)) or np.dtype(str(v.dtype)).itemsize)
        for v in variables
    )


# --- compiling ---------------------------------------------------------------------------------------------


def _kept_or_compiled(
    lowered: Any, source: bytes, request: dict[str, Any], folder: Path, dump: Path
) -> dict[str, Any]:
    """Return the compiled programs: from the cache where the same program was compiled for the same card
    before."""
    told = hashlib.sha256(source)
    told.update(json.dumps([request["target"], _plugin()[1], PROGRAMS, _KEPT_VERSION]).encode())
    entry = Path(request["cache"]) / told.hexdigest() if request["cache"] else None
    if entry is not None and entry.is_dir():
        kept = _kept(entry, folder)
        if kept is not None:
            return kept
        shutil.rmtree(entry, ignore_errors=True)  # damaged: what is compiled now takes its place
    programs: dict[str, Any] = {}
    for name, options in PROGRAMS.items():
        if programs and not dumped.has_own_products(folder / "own.hlo"):
            break  # every product is a library's already: the other program would be the same
        _say(f"compiling ({'XLA' if name == 'own' else 'library'} products)")
        programs[name] = _compiled(lowered, options, folder / f"{name}.hlo", dump)
    if entry is not None:
        with contextlib.suppress(OSError):  # keeping is an extra
            _keep(entry, programs, folder)
    return programs


def _kept(entry: Path, folder: Path) -> dict[str, Any] | None:
    """Return the programs of an entry, and copy their files to `folder`; None where any file is not as it was
    kept."""
    try:
        kept = json.loads((entry / "programs.json").read_text())
        for name, digest in kept["sha256"].items():
            program = (entry / f"{name}.hlo").read_bytes()
            if hashlib.sha256(program).hexdigest() != digest:
                return None
            (folder / f"{name}.hlo").write_bytes(program)
        programs: dict[str, Any] = kept["programs"]
        os.utime(entry)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return programs


def _keep(entry: Path, programs: dict[str, Any], folder: Path) -> None:
    """Place an entry whole or not at all, and remove the oldest entries."""
    part = entry.with_name(f"part-{os.getpid()}-{entry.name}")
    part.mkdir(parents=True, exist_ok=True)
    digests: dict[str, str] = {}
    for name in programs:
        program = (folder / f"{name}.hlo").read_bytes()
        (part / f"{name}.hlo").write_bytes(program)
        digests[name] = hashlib.sha256(program).hexdigest()
    (part / "programs.json").write_text(json.dumps({"programs": programs, "sha256": digests}))
    try:
        part.rename(entry)
    except OSError:  # another process was first
        shutil.rmtree(part, ignore_errors=True)
    entries = sorted(entry.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in entries[:-_MOST_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


_MOST_KEPT = 100  # some megabytes each
_KEPT_VERSION = 2  # another one where what is kept changes


def _without_assembler(error: Exception) -> Mendable:
    """Return what to do where no assembler takes the card: another CUDA's, or the newest of this one."""
    if _plugin()[0] == "cuda12":
        return Mendable(
            f"XLA found no assembler of CUDA 12 for this card: {_first_line(error)}",
            "pip install -U nvidia-cuda-nvcc-cu12, or CUDA 13's, 'mpprof[forecast]', in its own environment",
            unable=True,
        )
    return Mendable(
        "XLA found no assembler for this card (CUDA 13 has none before compute capability 7.5, and "
        f"mpprof[forecast-cuda12] brings CUDA 12's): {_first_line(error)}",
        "pip install 'mpprof[forecast-cuda12]', in an environment of its own",
        unable=True,
    )


def _compiled(lowered: Any, options: dict[str, Any], path: Path, dump: Path) -> dict[str, Any]:
    before = set(dumped.modules_in(dump))
    started = time.perf_counter_ns()
    try:
        compiled = lowered.compile(compiler_options=options) if options else lowered.compile()
    except Exception as error:
        _refuse_if_out_of_memory(error)
        if "ptxas" in str(error):
            raise _without_assembler(error) from error
        raise Mendable(
            f"XLA cannot compile this train step: {_first_line(error)}",
            "Take another policy or card: it would not compile there either",
            unable=True,
        ) from error
    took = time.perf_counter_ns() - started
    module = compiled.runtime_executable().hlo_modules()[0]
    path.write_bytes(dumped.hlo_proto(module.as_serialized_hlo_module_proto()))
    memory = compiled.memory_analysis()
    new = sorted(set(dumped.modules_in(dump)) - before)
    return {
        "compile_ns": took,
        "arguments_bytes": memory.argument_size_in_bytes,
        "outputs_bytes": memory.output_size_in_bytes,
        "aliased_bytes": memory.alias_size_in_bytes,
        "temporaries_bytes": memory.temp_size_in_bytes,
        "peak_bytes": getattr(memory, "peak_memory_in_bytes", None),
        "kernels": dumped.kernels(dump, new),
        "alive": dumped.alive(dump, new),
    }


def _refuse_if_out_of_memory(error: BaseException) -> None:
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        raise Mendable(
            f"this machine has too little memory for it: {_first_line(error)}",
            "Free memory, or take a smaller batch or model",
            unable=True,
        ) from error


_AROUND = re.compile(r"^Exception encountered when calling|Error encountered:$")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without a period at its end: it stands within a sentence.
    Keras writes the place where an error was raised before its text; those lines are left out."""
    text = _STYLE.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    while len(lines) > 1 and _AROUND.search(lines[0]):
        del lines[0]
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _say(phase: str) -> None:
    print(json.dumps({"phase": phase}), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
