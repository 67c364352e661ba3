"""What names in a trace mean: host events, threads, lines that converters derive, allocator types."""

from __future__ import annotations

import re
from functools import cache

from mpprof.model import limits
from mpprof.model.trace import CopyKind, HostKind

ACCELERATOR = re.compile(r"^/device:(?P<kind>GPU|TPU):(?P<ordinal>\d{1,9})\b(?! SparseCore)")
"""Planes of accelerators. Other device planes (`/device:CUSTOM:…`) hold no work, and those of a TPU's
SparseCores no work of its matrix unit."""

HOST = re.compile(r"^/host:(CPU\d*(?: \d+)?|CUPTI|ROCTRACER|ROCTX|python-tracer|TPU-runtime)$")
"""Planes of a host's threads (xplane_schema.h)."""
METADATA = "/host:metadata"
ENVIRONMENT = "Task Environment"


def is_read(plane: str) -> bool:
    """Return whether a plane of this name is of a kind that a training's profile has."""
    known = plane.startswith(METADATA) or plane == ENVIRONMENT
    return known or bool(ACCELERATOR.match(plane) or HOST.match(plane))


DERIVED_LINE_IDS = range(0xDEADBEEF, 0xDEADBEEF + 16)
"""Ids that XProf gives to lines it derives (`kThreadIdDerivedMin` in xplane_schema.h)."""

DERIVED_LINES = frozenset(
    (
        "Steps", "TensorFlow Ops", "TensorFlow Name Scope", "XLA Ops", "XLA Modules", "XLA TraceMe",
        "XLA Overlay", "Framework Ops", "Framework Name Scope", "Source code", "Source Code",
        "Host Offload Ops", "Launch Stats", "Kernel Launch", "Async XLA Ops", "Sparse Core Steps",
        "Sparse Core Modules", "Sparse Core Ops",
    )
)  # fmt: skip
ASYNCHRONOUS = "Async XLA Ops"
TPU_WORK_LINES = frozenset(("XLA Ops", ASYNCHRONOUS))
"""On a TPU plane these are no derivation: the hardware's own record of what ran. On the asynchronous one
copies overlap each other."""


def derived_name(name: str) -> str | None:
    """Return which of DERIVED_LINES a line's name says it is; None for other names. XProf 2.24 derives lines
    for each stream, and names the stream: `XLA Ops - from #16`."""
    line = name.partition(" - from #")[0]
    return line if line in DERIVED_LINES else None


def is_derived(line_id: int, name: str) -> bool:
    return line_id & 0xFFFFFFFF in DERIVED_LINE_IDS or derived_name(name) is not None


OP = re.compile(r"^(?P<name>[^\s].*):(?P<type>[A-Z_][A-Za-z0-9_]*)$", re.DOTALL)
"""How TensorFlow writes an op in a trace: `name:Type` (tsl/profiler `TfOpFullname`)."""

_NEVER = r"(?!)"
_KINDS = (
    (HostKind.OTHER, r"\$", _NEVER),  # the Python tracer's frames
    (HostKind.EXECUTOR, _NEVER, r":_(Host)?(Send|Recv)$"),  # "IteratorGetNext/_1:_Send" copies the batch
    (HostKind.LAUNCH, r"(cu|cuda|hip)\w*Launch(?!HostFunc)", _NEVER),
    # Those in the order of a stream (cudaMallocAsync) hold nothing up.
    (
        HostKind.ALLOCATE,
        r"(cuda|hip)(Malloc|Free|HostAlloc|HostRegister)(?!\w*Async)|"
        r"(cu|hip)Mem(Alloc|Free|Create|Map|Host(Alloc|Register))(?!\w*Async)",
        _NEVER,
    ),
    (
        HostKind.SYNC,
        r"(cu|cuda|hip)\w*(Synchronize|StreamWait\w*Value)|(cu|cuda|hip)Memcpy(?!.*Async)",
        _NEVER,
    ),
    (
        HostKind.COPY,
        r"(cu|cuda|hip)(Memcpy|Memset)|Mem(cpy|set)([HDP]2?[HDP]|\w*Async)?$|EagerCopyToDevice",
        _NEVER,
    ),
    (
        HostKind.COMPILE,
        r"(cu|hip)Module(Load|GetFunction)|(cu|hip)(Library|Link)",
        r"Compil(?!ed)|compil(?!ed)|Autotun|autotun|HloPass|trace_to_jaxpr|lower_jaxpr|ptxas|nvlink|LLVM|"
        r"XlaBuilder",
    ),
    (
        HostKind.SYNC,
        r"Wait\b",
        r"::Await\b|Block_?([Uu]ntil|[Hh]ost)|block_?([Uu]ntil|[Hh]ost)|WaitFor|ToLiteral|"
        r"TFE_TensorHandleResolve|np\.asarray|__array__|Semaphore",
    ),
    (
        HostKind.INPUT,
        r"DeviceIterator",
        r"IteratorGetNext(?<!^MultiDeviceIteratorGetNext)|IteratorResource|PrefetchConsume|get_next",
    ),
    (
        HostKind.INPUT_PIPELINE,
        r"Iterator::|MakeIterator|(tf_)?data_service|MultiDeviceIterator",
        r"Produce$|Consume$|CapturedFunction|BufferResize",
    ),
    (
        HostKind.EXECUTOR,
        r"Executor|FunctionRun|Eager|KernelAndDeviceFunc|TFE_|Pjit|cpp_pjit|shard_args$|ThunkExecutor|Thunks::|ParseArguments|"
        r"BufferSequencing|ThenExecute|Xla|RemoteCall|Handle input|AllocateOutput|Build buffer|MakeOutput|"
        r"RecordUsage|Resolve constant|ValidateInput|DevicePut|PythonRefManager|tf\.function|ProcessAsync|"
        r"BaseCollective|Schedule",
        r"P[Jj][Rr]t|Executable|XLA GPU module",
    ),
)
"""By precedence: how a name of a kind begins, and what it has anywhere. Each alternative of the latter starts
with a letter, or `re` tries all of them at every place of a name."""
_ANY_BEGIN = re.compile("|".join(begin for _, begin, _ in _KINDS if begin != _NEVER))
_ANY_PART = re.compile("|".join(part for _, _, part in _KINDS if part != _NEVER))


_KERAS = r"(?:train_function|one_step_on_iterator|multi_step_on_iterator)"
_CALL = r"^(?:(?:Eager(?:Local)?Execute: )?__inference_{0}_\d+|{0})$"
_FUNCTIONS = (
    ("function", re.compile(_CALL.format(_KERAS))),
    (
        "function",
        re.compile(r"^PjitFunction\((?!\w*(?:eval|test|valid|predict|infer))\w*(?:train|step)\w*\)$"),
    ),
    ("call", re.compile(_CALL.format(r"_?(?:distributed_)?train_step"))),
)
_BEGIN = (
    "Eager",
    "__inference_",
    "PjitFunction",
    "train",
    "_train",
    "distributed_",
    "one_step",
    "multi_step",
)
"""Calls of the training function. Keras 2 calls `train_function`, Keras 3 `one_step_on_iterator` or
`multi_step_on_iterator`; the executor's own event in it bears the compiled function's name."""


def function_family(name: str) -> str | None:
    """Return which family of calls of a training function an event of this name is: "function" (Keras on
    TensorFlow, a jitted step on JAX), "call" (a `tf.function` of a loop of the user's own); None for another
    event."""
    if not name.startswith(_BEGIN):
        return None
    return next((family for family, pattern in _FUNCTIONS if pattern.match(name[:_LONGEST])), None)


TRANSFERS = (":_Send", ":_Recv", ":_HostSend", ":_HostRecv")
"""How the names of ops end that hand a value to another device or thread: code of the executor, no op's
work."""

_LONGEST = 512
"""Characters of a name that are looked at: no pattern may take long over a name that fills a file."""


@cache
def _by_kind() -> tuple[tuple[HostKind, re.Pattern[str], re.Pattern[str]], ...]:
    return tuple((kind, re.compile(begin), re.compile(part)) for kind, begin, part in _KINDS)


@cache
def _waits() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    kinds = (HostKind.INPUT, HostKind.INPUT_PIPELINE)
    return tuple((re.compile(begin), re.compile(part)) for kind, begin, part in _KINDS if kind in kinds)


def may_be_input(name: str) -> bool:
    """Return whether `host_kind` may be INPUT or INPUT_PIPELINE: called for every op, most of which are
    neither."""
    name = name[:_LONGEST]
    return any(begin.match(name) or part.search(name) for begin, part in _waits())


def host_kind(name: str) -> HostKind:
    """Return what a host event of this name does; the reader adds what its thread and its stats say."""
    name = name[:_LONGEST]
    if _ANY_BEGIN.match(name) or _ANY_PART.search(name):  # most names are of no kind
        return next(kind for kind, begin, part in _by_kind() if begin.match(name) or part.search(name))
    return HostKind.OP if OP.match(name) else HostKind.OTHER


_COPY_NAME = r"[Mm]em[Cc](?:o?)py(?:Peer|[A-Za-z]*?(?P<a>[HDP])2?(?:to)?(?P<b>[HDP]))"
_BY_LETTERS = {
    "HD": CopyKind.HOST_TO_DEVICE,
    "DH": CopyKind.DEVICE_TO_HOST,
    "DD": CopyKind.DEVICE_TO_DEVICE,
    "PP": CopyKind.PEER,
}


def copy_kind(name: str) -> CopyKind:
    """Return the direction that a copy's name states: MemcpyH2D, hipMemcpyDtoHAsync, cuMemcpyPeer."""
    match = re.search(_COPY_NAME, name[:_LONGEST])
    if match is None:
        return CopyKind.OTHER
    if match["a"] is None:
        return CopyKind.PEER
    return _BY_LETTERS.get(match["a"] + match["b"], CopyKind.OTHER)


_BYTES = r"(?:^|\s)(?:size|num_bytes):(\d+)"


def bytes_of(details: str) -> int:
    """Return the size in `memcpy_details` or `memset_details`, -1 where none that is possible is stated."""
    match = re.search(_BYTES, details[:_LONGEST])
    return size if match and (size := int(match[1])) <= limits.LARGEST_MEMORY_BYTES else -1


_ENDS = {"pageable": "H", "pinned": "H", "unified": "U", "device": "D", "array": "D", "device_static": "D"}
_KIND_SRC = r"kind_src:(\S+)"
_KIND_DST = r"kind_dst:(\S+)"


def copy_kind_of_details(details: str) -> CopyKind | None:
    """Return the direction in `memcpy_details` (`kind_src:pinned kind_dst:device …`), None where none is
    stated."""
    details = details[:_LONGEST]
    source, target = re.search(_KIND_SRC, details), re.search(_KIND_DST, details)
    if source is None or target is None:
        return None
    return _BY_LETTERS.get(_ENDS.get(source[1], "?") + _ENDS.get(target[1], "?"))


DATA_TYPES = {
    1: "float", 2: "double", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "half", 20: "resource",
    21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2", 25: "float8_e4m3fn",
    29: "int4", 30: "uint4",
}  # fmt: skip
"""TensorFlow's DataType (tensorflow/core/framework/types.proto), spelled as in `tensor_shapes`."""

CALLS = (
    r"^((Stateful|Stateless)?(Partitioned)?Call|StatefulPartitionedCall|(Stateless)?(If|While|Case)|"
    r"RemoteCall|_?Xla(Launch|Run|Compile)\w*|SymbolicGradient|_Arg|_Retval|_(Host)?(Send|Recv)|NoOp|"
    r"\w*Iterator\w*|\w*Optional\w*)$"
)
"""Op types that only call others, move a value between threads or wait for input: no work of their own."""

SHAPES = ("tensor_shapes", "shape", "shape_with_layout")
DETAILS = ("kernel_details", "Kernel_details", "memcpy_details", "memset_details")
"""Statistics of an event on the device that state its tensors, and how it was launched or what it moved."""
