"""The table of remedies, as a whole and on cases: each fits the framework, the card and the evidence."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from mpprof.diagnosis.engine import judge
from mpprof.diagnosis.remedies import conditions
from mpprof.diagnosis.remedies.choosing import ROWS
from mpprof.diagnosis.remedies.frameworks import ANY, KERAS, Framework
from mpprof.diagnosis.remedies.shared_rows import Row
from mpprof.diagnosis.rules import ALL
from mpprof.diagnosis.signals import Case, Signals
from mpprof.model.account import Account
from mpprof.model.device import DeviceFacts, Vendor
from mpprof.model.finding import Finding
from mpprof.model.run import RunFacts
from mpprof.model.trace import HostKind
from tests.builders import cases as c
from tests.diagnosis.saying import finding

MI300 = DeviceFacts("gpu", "AMD Instinct MI300X", "amd")

# --- one run of each framework -----------------------------------------------------------------------------

RECORDED: dict[Framework, dict[str, Any]] = {
    "keras on tensorflow": {"keras": "3.15.1", "backend": "tensorflow"},
    "tf_keras": {"keras": "2.21.0", "keras_package": "tf_keras", "backend": "tensorflow"},
    "keras on jax": {"keras": "3.15.1", "backend": "jax"},
    "keras on torch": {"keras": "3.15.1", "backend": "torch"},
    "tensorflow": {"backend": "tensorflow", "loop": "custom"},
    "jax": {"backend": "jax", "loop": "custom"},
    "torch": {"backend": "torch", "loop": "custom"},
    "unknown": {"backend": "theano", "loop": "custom"},
}
TRACED: dict[Framework, tuple[str, ...]] = {
    "keras on tensorflow": ("EagerLocalExecute: __inference_multi_step_on_iterator_12",),
    "tf_keras": ("train_function", "EagerExecute: __inference_train_function_1107"),
    "keras on jax": ("Profiled batch 7", "PjitFunction(train_step)"),
    "tensorflow": ("ExecutorState::Process", "IteratorGetNext"),
    "jax": ("PjitFunction(train_step)",),
    "torch": ("aten::addmm", "ProfilerStep#3"),
    "unknown": ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n",),
}


def traced(*names: str, device: DeviceFacts = c.V100, of: Account | None = None, **changed: Any) -> Case:
    """A bare trace that holds these names."""
    trace = replace(c.trace(device), strings=names)
    account = of or c.account(c.cell("idle_input", 30))
    return c.case(records=None, account=account, **{"trace": trace, **changed})


def recorded(framework: Framework, **changed: Any) -> RunFacts:
    return c.facts(framework=RECORDED[framework], **changed)


def test_every_framework_is_told_by_its_records_and_by_its_names() -> None:
    for framework, stated in RECORDED.items():
        assert Signals(c.case(records=c.facts(framework=stated))).framework == framework
    for framework, names in TRACED.items():
        assert Signals(traced(*names)).framework == framework
    assert Signals(c.bare()).framework == "unknown"


def test_a_loop_of_the_users_own_runs_below_keras() -> None:
    signals = Signals(
        c.case(records=c.facts(framework={**RECORDED["keras on tensorflow"], "loop": "custom"}))
    )
    assert (signals.framework, signals.loop_framework) == ("keras on tensorflow", "tensorflow")


def test_keras_2_is_called_by_the_name_it_was_imported_by() -> None:
    assert Signals(c.case(records=recorded("tf_keras"))).words["keras"] == "tf_keras"
    assert Signals(traced(*TRACED["tf_keras"])).words["set_policy"] == (
        "tf.keras.mixed_precision.set_global_policy"
    )


# --- the table as a whole ----------------------------------------------------------------------------------

TORCH = r"\btorch\b(?!,|$)|PyTorch|(?<!grain\.)DataLoader|num_workers|persistent_workers|pin_memory|autocast|GradScaler|aten::"
TORCH_LOOP = r"GradScaler|scaler\.|non_blocking|autocast|torch\.optim|torch\.compile"
JAX = r"\bjax\.|\bjnp\b|\boptax\b|\bgrain\b|XLA_PYTHON_CLIENT|XProf"
TENSORFLOW = r"\btf\.|\bTF_[A-Z]|TensorFlow|tf_keras|AUTOTUNE|[Tt]ensor[Bb]oard|GradientTape"
KERAS_2_ONLY = r"tf\.keras|tf_keras|get_scaled_loss|set_global_policy|keras\.mixed_precision"
KERAS_3_ONLY = (
    r"(?<!tf\.)(?<!tf_)\bkeras\.|set_dtype_policy|loss_scale_factor|auto_scale_loss|use_cudnn|"
    r"gradient_accumulation_steps|KERAS_BACKEND|PyDataset|\.scale_loss\("
)
COMPILED_KERAS = (
    r"steps_per_execution|run_eagerly|model\.compile|model\.fit|MPProfilerCallback|steps_per_epoch"
)
WORDS_OF_KERAS = (
    rf"\bkeras\b|Keras|mixed_b?float16|LossScaleOptimizer|self\.compute_dtype|{COMPILED_KERAS}|clipnorm|"
    r'dtype="float32"|callbacks'
)
XLA = r"\bXLA|jit_compile|xla_gpu"
FOREIGN: dict[Framework, str] = {
    "keras on tensorflow": "|".join((TORCH, JAX, KERAS_2_ONLY)),
    "tf_keras": "|".join((TORCH, JAX, KERAS_3_ONLY)),
    "keras on jax": "|".join((TORCH, TENSORFLOW, KERAS_2_ONLY)),
    "keras on torch": "|".join((TENSORFLOW, JAX, KERAS_2_ONLY, TORCH_LOOP, "steps_per_execution", "XLA")),
    "tensorflow": "|".join((TORCH, JAX, WORDS_OF_KERAS, KERAS_3_ONLY)),
    "jax": "|".join((TORCH, TENSORFLOW, WORDS_OF_KERAS, KERAS_3_ONLY)),
    "torch": "|".join((TENSORFLOW, JAX, WORDS_OF_KERAS, KERAS_3_ONLY, XLA)),
    "unknown": "|".join((TORCH, TENSORFLOW, JAX, WORDS_OF_KERAS, KERAS_3_ONLY, XLA)),
}
"""Words that no remedy of a run of this framework may hold."""
NVIDIAS = (
    r"NVIDIA|nvidia|cuDNN|CUDNN|cuda\b|CUDA|CUPTI|[Nn]sys|Nsight|mpprof verify|Tensor Core|TF32|tf32|[AH]100"
)
AMDS = r"\bAMD\b|ROCm|rocm|MIOpen|MIOPEN|roctracer"
OF_TORCH_ON_ANY_CARD = r'torch\.cuda\.\w+|"cuda"|ProfilerActivity\.CUDA|torch\.backends\.cuda\S*'
"""What PyTorch calls the same for cards of every vendor."""
VALUES = {
    "policy": "mixed_float16", "first": 40, "last": 44, "multiple": 128, "enough": 30, "twice": 60, "baseline": "runs/b",
    "islands": "conv2d_2", "cross_entropy": "SparseCategoricalCrossentropy",
    "activation": "softmax", "units": 4, "names": ("logits",),
}  # fmt: skip
COMMANDS = {"python", "mpprof", "nsys", "nvidia-smi", "rocm-smi", "export", "groups", "tensorboard", "xprof"}
FEEDS = {"from_tf_data", "from_data_loader", "from_py_dataset"}
"""What is known to feed the training is called by its own name, whatever the framework."""
CAUSES = sorted({row.code for row in ROWS})
CASES = sorted({(row.code, row.case) for row in ROWS})
EVIDENCE = [None, *sorted({test.__name__ for row in ROWS for test in (*row.when, *row.unless)})]


def said(row: Row, framework: Framework) -> tuple[str, str]:
    """The row's text and code as a run of this framework has them."""
    given = Signals(c.case(records=recorded(framework))).words | VALUES
    text, snippet = row.text, row.snippet
    for name, value in given.items():
        text, snippet = text.replace(f"{{{name}}}", str(value)), snippet.replace(f"{{{name}}}", str(value))
    return text, snippet


def rows_for(code: str, case: str, framework: Framework, vendor: Vendor, evidence: str | None) -> list[Row]:
    """The rows of a cause where nothing is known but this one condition."""
    return [
        row
        for row in ROWS
        if (row.code, row.case) == (code, case)
        and framework in row.on
        and vendor in row.vendors
        and {test.__name__ for test in row.when} <= {evidence}
        and evidence not in {test.__name__ for test in row.unless}
    ]


def test_every_row_is_of_a_rule_or_of_what_is_to_be_recorded() -> None:
    known = {rule.CODE for rule in ALL} | {"mixed precision"}
    assert {code for code in CAUSES if not code.startswith("record ")} == known


@pytest.mark.parametrize("framework", get_args(Framework))
def test_every_cause_has_a_remedy_whatever_the_evidence(framework: Framework) -> None:
    missing = [
        (code, case, vendor, evidence)
        for (code, case), vendor, evidence in itertools.product(CASES, get_args(Vendor), EVIDENCE)
        if not code.startswith("record ") and not rows_for(code, case, framework, vendor, evidence)
    ]
    impossible = {("MP406", "in_float32"), *(("MP302", "from_nsys"), ("MP912", "from_nsys"))}
    missing = [each for each in missing if each[:2] != OF_TORCH or framework == "torch"]
    assert [each for each in missing if (each[0], each[3]) not in impossible or each[2] == "nvidia"] == []


OF_TORCH = ("MP412", "outside autocast")
"""A case that the rule finds in PyTorch's traces alone."""


@pytest.mark.parametrize("framework", get_args(Framework))
def test_no_remedy_holds_a_word_foreign_to_the_framework(framework: Framework) -> None:
    foreign = [
        (row.code, row.case, found[0])
        for row in ROWS
        if framework in row.on and not FEEDS & {test.__name__ for test in row.when}
        for part in said(row, framework)
        if (found := re.search(FOREIGN[framework], part))
    ]
    assert foreign == []


@pytest.mark.parametrize("vendor", sorted(set(get_args(Vendor)) - {"unknown"}))
def test_no_remedy_holds_a_word_of_another_vendor(vendor: Vendor) -> None:
    others = {"nvidia": AMDS, "amd": NVIDIAS}.get(vendor, f"{NVIDIAS}|{AMDS}")
    foreign = [
        (row.code, row.case, found[0])
        for row in ROWS
        if vendor in row.vendors
        for part in said(row, sorted(row.on)[0])
        if (found := re.search(others, re.sub(OF_TORCH_ON_ANY_CARD, "", part)))
    ]
    assert foreign == []


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.snippet], ids=lambda row: f"{row.code} {row.case}"
)
def test_code_to_copy_parses_as_python_or_shell(row: Row) -> None:
    for framework in sorted(row.on):
        _, snippet = said(row, framework)
        try:
            ast.parse(snippet)
        except SyntaxError:
            words = [word for word in shlex.split(snippet) if not re.match(r"[A-Z_0-9]+=", word)]
            assert words[0] in COMMANDS, snippet


def test_every_value_is_filled_in() -> None:
    for row in ROWS:
        for framework in sorted(row.on):
            assert not re.search(r"\{[a-z_]+\}", "".join(said(row, framework))), row


def test_the_cases_that_rules_choose_are_in_the_table() -> None:
    """By the text of the rules: a case without a row would leave a finding without a remedy."""
    stated = {
        (rule.CODE, ast.literal_eval(text))
        for rule in ALL
        for line in re.findall(r"cases=\((.*)\),", Path(inspect.getfile(rule)).read_text())
        for text in re.findall(r'"[^"]*"', line)
    }
    assert stated <= set(CASES) | {(code, "") for code in CAUSES}


def test_conditions_are_false_where_nothing_is_known() -> None:
    nothing = Signals(c.bare())
    assert {name for name in EVIDENCE if name and getattr(conditions, name)(nothing)} == set()


def test_the_oracle_knows_each_framework_by_its_own_words() -> None:
    own = {
        "keras on tensorflow": "tf.data.AUTOTUNE and keras.ops", "tf_keras": "tf_keras.layers, set_global_policy",
        "keras on jax": "jax.config and keras.config", "keras on torch": "DataLoader, keras.config",
        "tensorflow": "tf.function", "jax": "jax.jit, jnp.einsum", "torch": "torch.compile, GradScaler", "unknown": "",
    }  # fmt: skip
    for framework, other in itertools.product(ANY, ANY):
        found = bool(re.search(FOREIGN[framework], own[other]))
        if framework == other:
            assert not found
        elif other not in KERAS and other != "unknown":
            assert found or (framework, other) == ("keras on tensorflow", "tensorflow") or framework in KERAS


# --- the faults by name ------------------------------------------------------------------------------------


def texts(found: Finding) -> Sequence[str]:
    return [remedy.text for remedy in found.remedies]


def test_a_finding_lists_its_remedies_one_by_one_with_code_to_copy() -> None:
    found = finding(
        "MP302", c.case(account=c.account(c.cell("idle_launch", 30), c.healthy(70, calls_per_step=5000)))
    )
    assert found.remedy == "; ".join(texts(found))
    assert any(remedy.snippet.startswith("model.compile(") for remedy in found.remedies)


def test_a_kineto_trace_that_waits_for_input_is_told_of_its_data_loader() -> None:
    found = finding(
        "MP301", traced("aten::addmm", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    )
    assert "num_workers=8, persistent_workers=True" in found.remedy
    assert "pin_memory=True" in found.remedy
    assert not re.search(FOREIGN["torch"], found.remedy)


def test_a_data_loader_with_workers_and_pinned_memory_is_not_told_to_have_them() -> None:
    found = finding(
        "MP301",
        traced(
            "aten::addmm", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            "Memcpy HtoD (Pinned -> Device)",
        ),
    )  # fmt: skip
    assert "prefetch_factor" in found.remedy
    assert "num_workers=8" not in found.remedy
    assert "pin_memory" not in found.remedy


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ((), (True, True, True)),
        (("Iterator::Root::Prefetch",), (False, True, True)),
        (("Iterator::Model::ParallelMapV2::Zip", "ParallelMapConsume"), (True, False, True)),
        (("Iterator::Root::Prefetch::ParallelMapV2::MemoryCache",), (False, False, False)),
    ],
    ids=["nothing-known", "prefetch", "parallel-map", "all"],
)
def test_what_the_input_pipeline_has_is_not_asked_for(names: Sequence[str], options: Sequence[bool]) -> None:
    found = finding("MP301", traced("IteratorGetNext", *names))
    asked = (".prefetch(", "num_parallel_calls", ".cache()")
    assert tuple(option in found.remedy for option in asked) == tuple(options)
    assert ("already prefetches" in found.remedy) is not options[0]


@pytest.mark.parametrize(
    ("framework", "data", "words", "void"),
    [
        (
            "keras on jax",
            {"kind": "tf.data", "operations": ["Prefetch", "Batch", "Map"]},
            "data.map(",
            ".prefetch(",
        ),
        ("keras on tensorflow", {"kind": "DataLoader", "num_workers": 0}, "num_workers=8", "tf.data"),
        (
            "keras on torch",
            {"kind": "DataLoader", "num_workers": 4, "pin_memory": True},
            "prefetch_factor",
            "pin_",
        ),
        (
            "keras on tensorflow",
            {"kind": "PyDataset", "workers": 1},
            "workers=8, use_multiprocessing",
            "tf.data",
        ),
        ("keras on torch", {"kind": "PyDataset", "workers": 6}, "more workers", "DataLoader"),
        ("tf_keras", {"kind": "PyDataset"}, "fit(..., workers=8", "PyDataset"),
        ("keras on tensorflow", {"kind": "arrays"}, 'shuffle="batch"', "cache"),
        ("keras on torch", {"kind": "arrays"}, 'shuffle="batch"', "DataLoader"),
        ("keras on tensorflow", {"kind": "generator"}, "in place of the generator", "data.map("),
        ("keras on torch", {"kind": "generator"}, "in place of the generator", "DataLoader"),
        ("keras on jax", {"kind": "generator"}, "in place of the generator", "tf.data"),
        ("tf_keras", {"kind": "generator"}, "Sequence in place of the generator", "PyDataset"),
    ],
)
def test_the_recorded_input_decides(
    framework: Framework, data: dict[str, Any], words: str, void: str
) -> None:
    facts = recorded(framework, fit={"input": data})
    said = finding("MP301", c.case(records=facts, account=c.account(c.cell("idle_input", 30)))).remedy
    assert words in said
    assert void not in said


OF_PIPELINES = r"tf\.data|data\.(map|cache|prefetch|apply|batch)|\.cache\(\)|\.prefetch\(|the pipeline"
OF_LOADERS = r"(?<!grain\.)DataLoader|num_workers|pin_memory|prefetch_factor"
OF_DATASETS = r"PyDataset|max_queue_size|use_multiprocessing|Sequence"
INPUTS: dict[str, tuple[tuple[dict[str, Any], ...], str]] = {
    "arrays": (({},), rf"{OF_PIPELINES}|{OF_LOADERS}|{OF_DATASETS}|grain|generator|decoded"),
    "tf.data": (
        (
            {"operations": ["Prefetch", "Batch", "TensorSlice"]},
            {"operations": ["Batch", "Map", "TensorSlice"]},
            {"operations": ["Prefetch", "Batch", "ParallelMap", "Cache", "TFRecord"]},
        ),
        rf"{OF_LOADERS}|{OF_DATASETS}|grain|generator|shuffle=",
    ),
    "PyDataset": (({"workers": 1}, {"workers": 8}), rf"{OF_PIPELINES}|{OF_LOADERS}|grain|generator|shuffle="),
    "DataLoader": (
        ({"num_workers": 0}, {"num_workers": 8, "pin_memory": True, "persistent_workers": True}),
        rf"{OF_PIPELINES}|{OF_DATASETS}|grain|prefetch batches|generator|shuffle=",
    ),
    "generator": (({},), rf"{OF_PIPELINES}|{OF_LOADERS}|grain|prefetch batches|shuffle="),
}
"""By what was recorded to feed a training: how it may be set, and what no remedy may speak of."""


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("framework", ["keras on tensorflow", "keras on jax", "keras on torch", "tf_keras"])
def test_no_remedy_speaks_of_another_input_than_the_recorded_one(framework: Framework, kind: str) -> None:
    settings, void = INPUTS[kind]
    for stated in settings:
        facts = recorded(framework, fit={"input": {"kind": kind, **stated}})
        signals = Signals(c.case(records=facts, account=c.account(c.cell("idle_input", 30))))
        for code, case in {(row.code, row.case) for row in ROWS if row.code.startswith("MP3")}:
            for remedy in signals.remedies(code, (case,)):
                said = f"{remedy.text} {remedy.snippet}"
                assert not re.search(void, said), (code, stated, said)
        asked = str(signals.remedies("MP301"))
        assert signals.remedies("MP301"), "there is always something to do"
        for setting, void_of_it in SETTINGS if framework != "tf_keras" else ():  # set in `fit` there
            assert not (setting.items() <= stated.items() and void_of_it in asked), asked
        if "Map" not in str(stated.get("operations", "Map")):
            assert "map(" not in asked


SETTINGS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"pin_memory": True}, "text='pin_memory"),
    ({"persistent_workers": True}, "and persistent_workers=True"),
    ({"workers": 8}, "workers=8"),
)
"""What is set already, and is not to be asked for."""


def test_keras_own_prefetch_of_arrays_is_not_taken_for_a_pipeline_of_the_users() -> None:
    """Keras feeds arrays through a tf.data pipeline of its own, whose trace shows a Prefetch."""
    case = replace(
        traced("IteratorGetNext", "Iterator::Root::Prefetch"),
        run=c.run(recorded("keras on tensorflow", fit={"input": {"kind": "arrays"}})),
    )
    said = finding("MP301", case).remedy
    assert "already prefetches" not in said
    assert "tf.data" not in said


CONV = {"family": "conv_fprop", "kernel": "volta_scudnn_128x64_relu_interior_nn_v1"}
TRANSPOSED = c.account(c.cell("layout", 20), c.fallback(80, **CONV))


def test_transposes_of_the_layout_optimizer_are_not_met_by_channels_last() -> None:
    names = (
        "train_function",
        "gradient_tape/model/conv2d/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose",
    )
    found = finding("MP405", traced(*names, of=TRANSPOSED))
    assert "layout optimizer inserted them" in found.remedy
    assert "channels_last" not in found.remedy
    plain = finding("MP405", traced("train_function", of=TRANSPOSED))
    assert 'tf.keras.backend.set_image_data_format("channels_last")' in plain.remedy
    assert "layout optimizer" not in plain.remedy


@pytest.mark.parametrize(("format", "asked"), [("channels_last", False), ("channels_first", True)])
def test_layers_that_take_their_channels_last_are_not_told_to(format: str, asked: bool) -> None:
    layers = (c.layer("conv", "Conv2D", config={"data_format": format}), *c.HEALTHY_LAYERS)
    found = finding("MP405", c.case(records=c.facts(layers=layers), account=TRANSPOSED))
    assert ("channels_last" in found.remedy) is asked


def test_kernels_in_nhwc_that_nothing_transposes_for_have_their_channels_last() -> None:
    nhwc = "sm80_xmma_fprop_implicit_gemm_f16f16_nhwckrsc_nhwc_tilesize128x128x32"
    assert "channels_last" not in finding("MP405", traced("aten::conv2d", nhwc, of=TRANSPOSED)).remedy
    between = ("aten::conv2d", nhwc, "void cudnn::ops::nchwToNhwcKernel<__half, __half>")
    assert "memory_format=torch.channels_last" in finding("MP405", traced(*between, of=TRANSPOSED)).remedy


@pytest.mark.parametrize(
    ("op", "within"),
    [("aten::miopen_convolution", True), ("aten::convolution_backward", True), ("aten::permute", False)],
)
def test_transposes_that_convolutions_put_in_are_nobodys_permute(op: str, within: bool) -> None:
    """MIOpen turns images with channels first to run its kernels for channels last, in calls of the convolution."""
    turned = c.account(
        c.cell("layout", 20, op=op, op_type=op, kernel="batched_transpose_16x32_half"), c.fallback(80, **CONV)
    )
    names = (op, "aten::conv2d", "igemm_fwd_gtcx3_nhwc_bf16_bx0", "batched_transpose_16x32_half")
    found = finding("MP405", traced(*names, of=turned))
    assert found.remedies[0].text.startswith("channels_last: model.to(memory_format=torch.channels_last)")
    assert ("do not permute axes" in found.remedy) is not within


PASCAL = DeviceFacts("gpu", "NVIDIA GeForce GTX 1080 Ti", "nvidia", (6, 1))
TURING_16 = DeviceFacts("gpu", "NVIDIA GeForce GTX 1660 Ti", "nvidia", (7, 5))


@pytest.mark.parametrize(("code", "device"), [("MP801", PASCAL), ("MP802", TURING_16)])
def test_a_float32_run_is_not_told_to_use_float32(code: str, device: DeviceFacts) -> None:
    float32 = c.account(c.fallback(100))
    for case in (
        c.case(records=c.facts("float32", device=device)),
        traced("train_function", device=device, of=float32),
    ):
        assert finding(code, case).remedy.startswith("none needed")
    mixed = finding(code, c.case(records=c.facts(device=device)))
    assert 'keras.config.set_dtype_policy("float32")' in mixed.remedy


def test_a_float32_trace_is_not_told_to_record_float32() -> None:
    judgement = judge(traced("train_function", of=c.account(c.cell("idle_input", 10), c.fallback(90))))
    reasons = " ".join(unable.reason for unable in judgement.unable)
    assert "in float32 and name it" not in reasons
    assert "mpprof try train.py measures what 16 bits bring" in reasons


def test_an_op_on_the_cpu_is_no_reason_for_float32_in_a_float32_run() -> None:
    rows = rows_for("MP306", "", "keras on tensorflow", "nvidia", "in_float32")
    assert rows
    assert not any("float32" in row.text for row in rows)


def test_our_own_window_is_not_told_to_set_what_it_sets() -> None:
    slow = c.account(c.cell("profiling", -20), step_ms=80, wall_ms=80)
    slow = replace(slow, window_ns=120 * c.MS)
    own = finding("MP905", c.case(account=slow))
    assert "tracer" not in own.remedy
    assert own.remedy
    windows = (replace(c.facts().profile_windows[0], status="foreign"),)
    foreign = finding("MP905", c.case(records=c.facts(profile_windows=windows), account=slow))
    assert "no Python tracer" in foreign.remedy
    idle = c.account(c.cell("idle_other", 30))
    assert "tracer" not in judge(c.case(account=idle)).unable[0].reason


def test_nothing_sends_the_reader_to_a_page_that_does_not_show_it() -> None:
    assert not [row for row in ROWS if "mpprof serve" in row.text + row.snippet]


def test_a_loop_of_the_users_own_is_not_told_to_compile_with_keras() -> None:
    launches = c.account(c.cell("idle_launch", 30), c.healthy(70, calls_per_step=5000))
    facts = c.facts(framework={**RECORDED["keras on tensorflow"], "loop": "custom"})
    said = finding("MP302", c.case(records=facts, account=launches)).remedy
    assert "@tf.function(jit_compile=True)" in said
    assert "steps_per_execution" not in said


def test_a_compiled_torch_model_is_not_told_to_compile() -> None:
    launches = c.account(c.cell("idle_launch", 30), c.healthy(70, calls_per_step=5000))
    eager = finding("MP302", traced("aten::addmm", of=launches)).remedy
    assert "torch.compile(model)" in eager
    assert "CUDA graphs" in eager
    compiled = finding("MP302", traced("aten::addmm", "Torch-Compiled Region: 0/0", of=launches)).remedy
    assert "torch.compile(model)" not in compiled
    graphs = replace(c.trace(graphs=(1, 1)), strings=("aten::addmm",))
    assert "CUDA graphs" not in finding("MP302", traced(of=launches, trace=graphs)).remedy


def test_eager_jax_is_told_to_compile_the_whole_step_and_compiled_jax_is_not() -> None:
    launches = c.account(c.cell("idle_launch", 30), c.healthy(70, calls_per_step=5000))
    many = tuple(
        f"PjitFunction({op})" for op in ("add", "mul", "sin", "dot", "exp", "sub", "div", "max", "sum")
    )
    assert "jax.jit" in finding("MP302", traced(*many, of=launches)).remedy
    assert "jax.jit" not in finding("MP302", traced("PjitFunction(train_step)", of=launches)).remedy
    # Keras with jit_compile=False, as recorded on an H100: half of each step went into tracing the gradient.
    tracing = c.account(c.cell("idle_compile", 50), c.healthy(50))
    trace = replace(c.trace(), strings=many)
    for jit, first in ((False, "jit_compile=True"), (True, "constant shapes")):
        records = recorded("keras on jax", fit={"jit_compile": jit})
        said = finding("MP902", c.case(records=records, account=tracing, trace=trace)).remedy
        assert said.startswith(first)


@pytest.mark.parametrize(
    ("device", "words", "foreign"), [(c.V100, "nvidia-smi", "rocm-smi"), (MI300, "rocm-smi", "nvidia-smi")]
)
def test_throttling_is_looked_at_with_the_vendors_own_tool(
    device: DeviceFacts, words: str, foreign: str
) -> None:
    table = c.steps(np.concatenate((np.full(100, 100.0), np.full(100, 120.0))))
    case = c.case(records=c.facts(device=device), table=table)
    said = finding("MP807", case).remedy
    assert words in said
    assert foreign not in said


def test_kernels_off_the_matrix_units_of_an_amd_card_get_no_advice_on_cudnn() -> None:
    off = c.fallback(100, precision="fp16", shapes="(half[64,64];half[64,64])", layer="dense")
    case = c.case(records=c.facts(device=MI300), account=c.account(off), peaks=c.V100_PEAKS)
    said = finding("MP409", case).remedy
    assert "MIOpen" in said
    assert not re.search(NVIDIAS, said)


def test_only_a_card_that_has_it_is_told_to_use_bfloat16() -> None:
    scaling = c.account(c.cell("loss_scale", 20))
    assert "bfloat16" not in finding("MP304", c.case(account=scaling)).remedy
    ampere = c.case(records=c.facts(device=c.A100), account=scaling)
    assert "mixed_bfloat16" in finding("MP304", ampere).remedy


def test_what_turns_xla_off_is_what_is_to_be_changed() -> None:
    plain = c.facts(layers=c.HEALTHY_LAYERS, distribution="MirroredStrategy")
    under_strategy = finding("MP309", c.case(records=plain)).remedy
    assert under_strategy == "jit_compile=True"
    lstm = c.facts(layers=(c.layer("lstm", "LSTM", supports_jit=False), *c.HEALTHY_LAYERS))
    assert "use_cudnn=False" in finding("MP309", c.case(records=lstm)).remedy
    text = c.facts(layers=(c.layer("text", "TextVectorization", supports_jit=False), *c.HEALTHY_LAYERS))
    said = finding("MP309", c.case(records=text)).remedy
    assert "input pipeline" in said
    assert "use_cudnn" not in said


@pytest.mark.parametrize(
    ("names", "of", "words"),
    [
        (TRACED["keras on tensorflow"], c.account(), "mpprof try train.py measures it"),
        (TRACED["tf_keras"], c.account(), "mpprof try train.py measures it"),
        (TRACED["torch"], c.account(), "without torch.autocast"),
        (TRACED["torch"], c.account(c.fallback(100)), "under torch.autocast"),
        (
            TRACED["keras on jax"],
            c.account(c.fallback(100)),
            "mpprof try train.py measures what 16 bits bring",
        ),
    ],
)
def test_the_missing_run_is_recorded_in_the_frameworks_own_way(
    names: Sequence[str], of: Account, words: str
) -> None:
    estimated = c.speedup(baseline="estimated", observed=None, gap_ns=None, absent={"observed": "nothing"})
    judged = judge(traced(*names, of=of, speedup=estimated)).speedup
    said = (judged.absent or {})["observed"]
    assert words in said
    assert "mpprof try" in words or "--baseline run" in said or "mpprof report run --baseline" in said


def test_a_path_is_quoted_for_the_shell() -> None:
    case = replace(c.bare(), run=replace(c.run(), path=c.Path("my runs/it's 1")))
    words = Signals(case).words
    assert shlex.split(str(words["run"])) == ["my runs/it's 1"]


def test_host_events_are_not_asked_for_where_there_are_some() -> None:
    idle = c.account(c.cell("idle_other", 30))
    none = judge(traced("aten::addmm", of=idle))
    assert "record the CPU's activities too" in " ".join(unable.reason for unable in none.unable)
    trace = replace(c.trace(), strings=("aten::addmm",))
    kinds = np.array([int(HostKind.OP)], dtype=np.int8)
    host = replace(trace.host, **dict.fromkeys(trace.host.__dataclass_fields__, kinds))
    some = judge(traced(of=idle, trace=replace(trace, host=host)))
    assert "activities" not in " ".join(unable.reason for unable in some.unable)


def test_jax_is_not_told_to_compile_nothing_against_recompiles() -> None:
    """Without jit_compile JAX traces the gradient anew in each step."""
    fed = {"jit_compile": True, "input": {"kind": "tf.data"}}
    signals = Signals(c.case(records=recorded("keras on jax", fit=fed)))
    said = [remedy.snippet for remedy in signals.remedies("MP902")]
    assert said == ["data = data.batch(64, drop_remainder=True)"]
    on_tensorflow = Signals(c.case(records=recorded("keras on tensorflow", fit=fed)))
    assert "jit_compile=False" in " ".join(each.snippet for each in on_tensorflow.remedies("MP902"))
