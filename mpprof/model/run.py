"""A run: what `run.json` states, its step log, and where its traces lie."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Any

from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import frozen
from mpprof.model.run_time import RECORDING_ENDED, WHOLE, Spans
from mpprof.model.steps import HardwareTable, StepTable, ValidationTable


@frozen
class FirstBreak:
    """The first output or gradient that is not finite or is lost; `tensor` is "output", "gradient"
    or "weight_gradient", `kind` and `source` as `mpprof.numbers.result.Break` has them. `advice`, with its
    code for Keras: what to do."""

    layer: str
    tensor: str
    reason: str
    kind: str | None = None
    source: str | None = None
    advice: str | None = None
    snippet: str | None = None


BROKE = ("skipped", "loss")
"""The triggers of looks that were made because something had broken: they are read before the others."""
UPDATE = "update"
"""The tensor of a break that is what weights of 16 bits lose of an update."""


@frozen
class NumbersLook:
    """One look. `now`: the loss scale in use, `low` and `high` the band that is good; None: not known, or
    there is none (`banded`: the band was looked for). `updates`: what an update of weights of 16 bits loses,
    where that is worth advice."""

    trigger: str
    step: int | None
    forward: FirstBreak | None
    backward: FirstBreak | None
    now: float | None = None
    low: float | None = None
    high: float | None = None
    banded: bool = False
    updates: FirstBreak | None = None


@frozen
class ShownLook:
    """The look of a run that shows most, for a page. `lines`: what it says; `rows`: as `layers` of the JSON
    of `mpprof numerics`; `advice`: what to do, each with its code."""

    heading: str
    lines: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    advice: tuple[tuple[str, str], ...]


@frozen
class TriedRemedy:
    """A remedy of one cause that `mpprof try` put into the run's script. `change`: "workers=8"; `said`: what
    it had promised and has brought, in words."""

    code: str
    change: str
    said: str


@frozen
class LayerFacts:
    """One layer as the walk over the model found it. Names are paths: `encoder/dense_1`."""

    name: str
    class_name: str
    compute_dtype: str | None
    variable_dtype: str | None
    output_dtype: str | None
    config: dict[str, Any] = field(default_factory=dict)
    input_shape: Any = None
    output_shape: Any = None
    parameters: int | None = None
    parameter_bytes: int | None = None  # of a layer of whole numbers; None: all are of `variable_dtype`
    supports_jit: bool | None = None
    module: str | None = None  # the package that its class is from: "keras", "tf_keras", or the user's
    dtype_policy: str | None = None  # "mixed_float16", of a quantised layer "int8_from_float32"
    dtype_given: bool | None = None  # the script names its type; None: it does not, or that is not known
    masked: bool | None = None  # a recurrent layer that is fed a mask
    arguments: dict[str, str] = field(default_factory=dict)  # as it is written; only of a model at hand
    base: str | None = None  # the class of Keras' own that a class of the user's derives from
    trainable: bool | None = None
    inbound: tuple[str, ...] | None = None  # layers whose results it takes; None: no functional model
    takes: tuple[str, ...] | None = None  # layers and functions; None: no functions, or not recorded

    @property
    def kind(self) -> str:
        """What it is: its class, or the one of Keras' own that it derives from."""
        return self.base or self.class_name

    @property
    def quantized(self) -> str | None:
        """ "int8" of a layer that Keras quantised; None of any other."""
        kind, made, _ = (self.dtype_policy or "").partition("_from_")
        return kind if made else None


@frozen
class FunctionFacts:
    """A function of `keras.ops` between the layers of a functional model. `takes`: the layers and functions
    whose results it takes, each by its own name, twice what it takes twice. `output_shape`: of several
    tensors a tuple of theirs; None: not recorded."""

    name: str
    class_name: str
    module: str | None
    takes: tuple[str, ...]
    output_shape: Any
    output_dtype: str | None


@frozen
class OutputFacts:
    """One output of a model and the layer or function that gives it."""

    layer: str
    dtype: str | None


@frozen
class ModelFacts:
    name: str | None
    parameters: int | None
    layers: tuple[LayerFacts, ...]
    outputs: tuple[OutputFacts, ...] = ()  # empty: a subclassed model, which does not state them
    class_name: str | None = None
    train_step: str | None = None  # "own": overridden; "clips": overridden, and its source clips gradients
    trainable_parameters: int | None = None
    functions: tuple[FunctionFacts, ...] | None = ()  # None: not recorded, by an older mpprof


@frozen
class PolicyFacts:
    """`global_name` is run.json's `policy.global`, the process' policy; the dtypes are the model's own."""

    global_name: str | None
    compute_dtype: str | None
    variable_dtype: str | None

    @property
    def own(self) -> str | None:
        """The policy that the model was built with, by its types: the process' may have changed since.
        "float16" where all is, "mixed_float16" with float32 variables. None: not recorded."""
        if self.compute_dtype is None or self.variable_dtype in (None, self.compute_dtype):
            return self.compute_dtype
        return f"mixed_{self.compute_dtype}"

    @property
    def name(self) -> str | None:
        """The process' policy; the model's own where that is 16-bit and the process' is not (any more)."""
        own, of_process = self.own, self.global_name
        return own if own and "16" in own and "16" not in (of_process or "") else of_process or own


@frozen
class OptimizerFacts:
    class_name: str | None
    inner: str | None = None  # the wrapped optimizer's class, under a LossScaleOptimizer
    dynamic: bool | None = None
    initial_scale: float | None = None
    growth_steps: int | None = None
    fixed_scale: float | None = None
    clipping: dict[str, float] | None = None
    slots: int | None = None  # values that it keeps for each trained parameter; None: not known


@frozen
class FitFacts:
    """One `fit` call."""

    fit: int
    first_step: int
    initial_epoch: int | None
    policy: PolicyFacts
    optimizer: OptimizerFacts
    batch_size: int | None  # global
    jit_compile: bool | str | None
    run_eagerly: bool | None
    steps_per_execution: int | None
    gradient_accumulation_steps: int | None
    non_finite_weights: tuple[str, ...] | None = None  # when it ended; None: not looked at
    loss: str | None = None  # what the model was compiled to minimise, in one line; None: not recorded
    scale_loss_called: bool | None = None  # while the step was traced; None: nobody could see it
    input: dict[str, Any] = field(default_factory=dict)  # what makes the batches: `kind`, and how it is set


@frozen
class ProfileWindow:
    """`trace` is the profiler session's own directory, relative to the log directory."""

    trace: str | None
    host: str | None
    first_step: int
    last_step: int | None
    started_unix_ns: int | None
    start_cost_ns: int | None
    stop_cost_ns: int | None
    status: str  # "done", "foreign" (of Keras' TensorBoard callback), "open" (killed within), "failed: <why>"
    automatic: bool | None = None  # mpprof chose its steps; None: not recorded


@frozen
class ProfilePlan:
    """The steps that the profile window was to hold. An automatic one opens at `first_step` or later, once
    step times have settled; `last_step` is None for one of so many steps from where it opens."""

    first_step: int
    last_step: int | None
    automatic: bool

    def opens(self, step: int) -> str:
        """Return when a window opens that has not by `step`; "" where its first step has passed."""
        if step < self.first_step:
            return f"at step {self.first_step:,}" + (" or soon after" if self.automatic else "")
        return "once step times have settled" if self.automatic else ""


@frozen
class Timing:
    """How the step log was measured: `basis` is "synchronous" or "asynchronous"."""

    basis: str
    read_every: int
    note: str


@frozen
class Ended:
    """How a training ended otherwise than by its end: "out_of_memory" (`error` is then the error's text),
    "interrupted" by the keyboard, "exit" (`sys.exit`), "error" (its type, with its own words in `text`), or
    "unknown"."""

    reason: str
    error: str | None
    text: str | None = None

    @property
    def by_error(self) -> bool:
        """Whether an error ended it, which an interrupt and `sys.exit` are not."""
        return self.reason in ("error", "out_of_memory")

    @property
    def first_line(self) -> str:
        """The error's type and the first line of what it says; "" where neither is known."""
        head = ": ".join(filter(None, (self.error, self.text)))
        return next(iter(head.splitlines()), "")

    @property
    def kind(self) -> str:
        """The error in a word or three: "out of memory", "ValueError"."""
        return "out of memory" if self.reason == "out_of_memory" else self.error or "error"


BROKEN_OFF = "training was broken off"
"""How the sentence on a training begins that neither ran to its end nor ended by an error on record."""
NO_END = "the log does not show the end of the training"
"""What is said of a log that ends without a line on it: the training may still run."""


@frozen
class RunFacts:
    """run.json, schema `mpprof.run/1`. `absent` gives the reason for each field that was not measured."""

    run_id: str
    created_unix_ns: int
    clock_monotonic_ns: int
    clock_unix_ns: int
    host: str | None
    framework: dict[str, Any]  # keras, backend, backend_version, python, cuda, cudnn, xla_flags, ...
    distribution: str | None
    replicas: int | None
    tf32_enabled: bool | None
    deterministic_ops: bool | None
    graph_rewrite: Any  # False, or how grappler's auto_mixed_precision was asked for
    devices: tuple[DeviceFacts, ...]
    model: ModelFacts | None
    fits: tuple[FitFacts, ...]
    profile_windows: tuple[ProfileWindow, ...]
    timing: Timing | None
    absent: dict[str, str]
    graph_rewrite_result: dict[str, Any] = field(default_factory=dict)  # what it did; empty: not known
    ended: Ended | None = None  # None: it ended by itself, still runs, or nothing could say how it ended
    profile_plan: ProfilePlan | None = None  # None: not wanted, or not recorded
    launched: bool = False  # by `mpprof run` or `mpprof try`, without an edit of the script
    script: str | None = None  # as a command names it: "src/train.py", "-m package.train"; None: not known

    @property
    def planned(self) -> ProfilePlan | None:
        """The plan of a window that has not opened."""
        return None if self.profile_windows else self.profile_plan

    @property
    def reasons(self) -> dict[str, str]:
        """`absent` by the fields of a report: the records' memory is that of the step log, a trace may have
        its own."""
        fields = {"memory": "steps.peak_memory_bytes"}
        return {fields.get(key, key): why for key, why in self.absent.items()}

    @property
    def is_keras_2(self) -> bool:
        """Whether it is Keras 2, under either of its names."""
        framework = self.framework
        return framework.get("keras_package") == "tf_keras" or str(framework.get("keras")).startswith("2.")


@frozen
class HostTrace:
    """What one of several hosts left of the profiler window: its trace, or why there is none to read.
    `worker`: the number of its records, where it has any."""

    host: str
    trace: Path | None
    worker: int | None = None
    reason: str = ""


@frozen
class Run:
    """Everything that a log directory (or a lone trace file) holds of one run.

    `facts` and `steps` are None for a trace without records. `traces` are the trace files of this run,
    oldest first; the last one is analysed unless another is asked for. `warnings` are what the reader of
    the records has to say (torn line, unknown line, killed run).
    """

    name: str  # short and unique under the directory that was loaded
    path: Path
    facts: RunFacts | None
    steps: StepTable | None
    validations: ValidationTable | None
    hardware: HardwareTable | None
    traces: tuple[Path, ...]
    finished: bool  # a fit_end line, or no step log at all
    warnings: tuple[str, ...] = ()
    workers: dict[int, StepTable] = field(default_factory=dict)  # step logs of the workers beside the first
    hosts: tuple[
        HostTrace, ...
    ] = ()  # of the last trace's window, its own host first; empty: it has one host
    step_range: str | None = None  # which ranges of the trace make its steps, where the user named some
    spans: Spans | None = None  # what the step log holds beside steps and validations; None: there is no log
    looks: tuple[NumbersLook, ...] = ()  # at the numbers by layer, in their order
    tried: tuple[TriedRemedy, ...] = ()  # in the order in which they were tried
    stopped: bool = False  # no end is on record, and when it was judged nobody wrote to it any more

    @property
    def broken_off(self) -> str | None:
        """How the last training was broken off; None where it was not, or an error on record ended it."""
        return how_broken_off(self.facts, self.spans)

    @property
    def last_step(self) -> int:
        """The last step on record; 0 where there is none."""
        return 0 if self.steps is None else int(self.steps.step.max(initial=0))

    @property
    def run_id(self) -> str:
        """The id in the records; without records, the name."""
        return self.facts.run_id if self.facts else self.name

    @property
    def last_fit(self) -> FitFacts | None:
        """The facts of the last `fit`; None where none was recorded."""
        return self.facts.fits[-1] if self.facts and self.facts.fits else None

    @property
    def model(self) -> ModelFacts | None:
        """The model; None where none was recorded."""
        return self.facts.model if self.facts else None

    @property
    def layers(self) -> tuple[LayerFacts, ...]:
        """The model's layers; empty where none were recorded."""
        return self.model.layers if self.model else ()

    @property
    def devices(self) -> tuple[DeviceFacts, ...]:
        """The devices in the records; empty without records."""
        return self.facts.devices if self.facts else ()


def how_broken_off(facts: RunFacts | None, spans: Spans | None) -> str | None:
    """Return how the last training was broken off: "interrupted" by the keyboard, "exit", or "unknown"; None
    where it was not, or an error on record ended it."""
    if facts is not None and facts.ended is not None:
        return None if facts.ended.by_error else facts.ended.reason
    last = spans.fits[-1].reason if spans is not None and spans.fits else None
    return None if last in (None, *WHOLE, RECORDING_ENDED) else "exit" if last == "exit" else "unknown"
