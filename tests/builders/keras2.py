"""One profiled step as TensorFlow 2.5 and Keras 2 wrote it (`profile_batch=2`), with the oddities of real files.

Names, threads, stats and the order of events follow what was seen in public traces of 2021 to 2023; the times are
made up. Each function at the end is a twin of one oddity, and is named after it. Times are microseconds; the file's
events begin long after its zero, as real ones do. Nothing here imports mpprof.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.builders.allocations import Allocator
from tests.builders.xspace import Line, Plane, Ref, Space, StatValue

STARTED_US = 650_000.0
STEP_ID, PIPELINE_ID = -5030785388107884202, -837626589777498991
GARBAGE = "regs:140531533435072 shm:1 grid:0,140536856111648,0"
GEMM = "volta_sgemm_64x64_nt"
ADD = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<...float...>, long>(...)"


@dataclass
class Step:
    """The step's file while it is written. `gpu`: an RTX 2060's planes; else a CPU's."""

    gpu: bool = True
    space: Space = field(default_factory=Space)
    function: str = "__inference_train_function_1127"
    python_call: str = "train_function"
    correlation: int = 0
    _lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    _planes: dict[str, Plane] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gpu:
            device = self._plane("/device:GPU:0")
            device.stats = {
                "clock_rate": 1_185_000, "core_count": 30, "memory_bandwidth": 264_048_000_000,
                "memory_size": 6_230_000_000, "compute_cap_major": 7, "compute_cap_minor": 5,
            }  # fmt: skip

    # ---- events

    def _plane(self, name: str) -> Plane:
        if name not in self._planes:
            self._planes[name] = self.space.plane(name)
        return self._planes[name]

    def _line(self, plane: str, name: str) -> Line:
        key = plane, name
        if key not in self._lines:
            self._lines[key] = self._plane(plane).line(len(self._lines) + 4_000_000_000, name, 34_000)
        return self._lines[key]

    def host(self, thread: str, name: str, start: float, length: float, **stats: StatValue | Ref) -> None:
        line = self._line("/host:CPU", thread)
        line.event(
            name, (STARTED_US + start) * 1e3, length * 1e3, {k.lstrip("."): v for k, v in stats.items()}
        )

    def device(self, stream: str, name: str, start: float, length: float, **stats: StatValue | Ref) -> None:
        line = self._line("/device:GPU:0", stream)
        line.event(name, (STARTED_US + start) * 1e3, length * 1e3, stats)

    def call(self, length: float, *, start: float = 0.0, executor: float = 900.0) -> None:
        """Python's call of the training function; its executor begins `executor` after it."""
        python = "python3"
        self.host(
            python, self.python_call, start, length, tf_function_call=Ref("notTraced-nonXla"), tracing_count=2
        )
        self.host(python, "TFE_Py_ExecuteCancelable", start + 300, length - 500)
        self.host(python, f"EagerExecute: {self.function}", start + 350, length - 600)
        self.host(python, f"EagerLocalExecute: {self.function}", start + 351, length - 602)
        self.host(python, "EagerCopyToDeviceAndAddCacheKey", start + 353, 100)
        self.host(python, "TensorHandle::GetResourceHandleInfo WaitReady", start + 360, 0.1)
        self.host(
            python,
            "EagerKernelExecute",
            start + 500,
            length - 760,
            group_id=0,
            step_name="EagerKernelExecute 0",
        )
        self.host(python, "FunctionRun", start + 520, 20, id=STEP_ID, group_id=0)
        self.process("tf_Compute/-1779941186", start + executor, length - executor - 300)

    def process(self, thread: str, start: float, length: float, id: int = STEP_ID) -> None:
        group = {"group_id": 0} if id == STEP_ID else {}
        self.host(thread, "ExecutorState::Process", start, length, id=id, iter_num=0, **group)

    def iterator(self, start: float, wait: float, op: str = "IteratorGetNext") -> None:
        """The wait for the batch, on a thread of its own; the op on the executor's thread only schedules it."""
        self.host("tf_Compute/-1779941186", f"{op}:{op}", start - 40, 25, group_id=0, is_eager=0)
        thread = "tf_data_iterator_get_next/7"
        self.host(thread, f"{op}Op::DoCompute", start, wait, id=STEP_ID, iter_num=0, group_id=0)
        self.host(thread, "Iterator::Model", start + 20, wait - 30, id=8657191748588784820, group_id=0)

    def kernel(
        self, name: str, launch: float, start: float, length: float, *, op: str, takes: float = 20.0,
        thread: str = "tf_Compute/-1779941186", stream: str = "Stream #13(Compute,MemcpyD2D)", eager: int = 0,
    ) -> None:  # fmt: skip
        """A kernel and its launch, which bears the kernel's own name, a correlation id and details of garbage."""
        self.correlation += 1
        own: dict[str, Any] = {"correlation_id": self.correlation, "context_id": "$$1", "group_id": 0}
        self.host(thread, name, launch, takes, **own, kernel_details=GARBAGE)
        self.device(stream, name, start, length, **own, annotation=Ref(op), is_eager=eager,
                    kernel_details="regs:48 shm:8192 grid:30,1,1 block:256,1,1")  # fmt: skip

    def copy(
        self, way: str, launch: float, start: float, length: float, size: int, *, edge: str, takes: float = 20.0,
        thread: str = "tf_Compute/-1779941186",
    ) -> None:  # fmt: skip
        self.correlation += 1
        details = f"size:{size} dest:0 async:1"
        own: dict[str, Any] = {
            "correlation_id": self.correlation,
            "context_id": "$$1",
            "memcpy_details": details,
        }
        self.host(thread, f"Memcpy{way}", launch, takes, **own)
        self.device(f"Stream #{14 if way == 'H2D' else 15}(Memcpy{way})", f"Memcpy{way}", start, length, **own,
                    annotation=Ref(edge), group_id=0)  # fmt: skip

    def send_batch(
        self, start: float, blocks: float, size: int = 196_608, *, thread: str, copied: float
    ) -> None:
        """The batch goes to the device: an op that is named after the iterator, with the copy's call in it."""
        name = "IteratorGetNext/_1:_Send"
        self.host(
            thread,
            name,
            start,
            blocks + 40,
            group_id=0,
            is_eager=0,
            **{"from": "IteratorGetNext", "to": "Cast"},
        )
        self.copy("H2D", start + 20, copied, 31, size, takes=blocks, thread=thread,
                  edge=f"{name}#from=IteratorGetNext,to=Cast#::#edge_name=edge_29_IteratorGetNext#")  # fmt: skip

    def ops(self, first: float, count: int, apart: float = 60.0, length: float = 5.0) -> None:
        """Small kernels, one after the other, each launched when the device has been idle for long."""
        for at in range(count):
            launch = first + at * apart
            what = (
                (GEMM, f"model/dense_{at}/MatMul:MatMul")
                if at % 2
                else (ADD, f"model/dense_{at}/BiasAdd:BiasAdd")
            )
            self.kernel(what[0], launch, launch + 12, length, op=what[1])

    def read_logs(self, start: float, waits: float = 5.0) -> None:
        """Keras turns the logs into floats: a wait for the device and copies of four bytes."""
        self.correlation += 1
        self.host("python3", "cuStreamSynchronize", start, waits, correlation_id=self.correlation)
        for at in (0, 60):
            begin = start + waits + at
            self.copy("D2H", begin, begin + 40, 1.5, 4, edge="#edge_name=copy#", takes=50, thread="python3")

    def summary(self, start: float) -> None:
        """TensorBoard's callback, as eager ops; one of them runs a kernel."""
        for name, at, length in (
            ("LogicalAnd", 0, 160), ("Identity", 400, 40), ("WriteSummary", 700, 60), ("FlushSummaryWriter", 900, 75),
        ):  # fmt: skip
            for event in ("EagerExecute", "EagerLocalExecute"):
                self.host("python3", f"{event}: {name}", start + at, length)
            self.host("python3", f"{name}:{name}", start + at + 5, length - 10, group_id=0, is_eager=1)
        if self.gpu:
            self.kernel(
                ADD, start + 60, start + 110, 2.9, op="LogicalAnd:LogicalAnd", thread="python3", eager=1
            )

    def steps_line(self, start: float, end: float) -> None:
        """What the collector takes for the step."""
        line = self._plane("/device:GPU:0").line(0xDEADBEEF, "Steps", 34_000)
        line.event(
            "0", (STARTED_US + start) * 1e3, (end - start) * 1e3, {"step_name": "EagerKernelExecute 0"}
        )

    def to_bytes(self) -> bytes:
        return self.space.to_bytes()


# --- twins: each a whole file with one oddity -----------------------------------------------------------------


def marker_ends_with_a_callbacks_kernel() -> Step:
    """The `Steps` line ends with the summary writer's kernel, 53 ms of plain Python after the step's last one."""
    step = Step()
    step.call(14_000)
    step.iterator(1_000, 100)
    step.ops(1_200, 180)
    step.kernel(GEMM, 12_500, 12_600, 2_500, op="gradient_tape/model/dense/MatMul:MatMul")  # until 15,100
    step.read_logs(14_100, waits=990)
    step.summary(68_000)
    step.steps_line(1_212, 68_113)
    return step


def marker_shorter_than_the_call() -> Step:
    """The `Steps` line begins with the first kernel, 8 ms into the call."""
    step = Step()
    step.call(20_000, executor=7_900)
    step.ops(8_000, 150)
    step.read_logs(20_050)
    step.summary(20_800)
    step.steps_line(8_012, 20_913)
    return step


def device_runs_on_after_the_call() -> Step:
    """Kernels queue behind the host: the device works 21 ms longer than the call, and the log read waits for it."""
    step = Step()
    step.call(14_000)
    for at in range(100):
        op = f"gradient_tape/model/conv2d_{at}/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter"
        step.kernel(GEMM, 1_000 + 120 * at, 1_020 + 340 * at, 340, op=op)  # until 35,020
    step.read_logs(14_200, waits=20_900)
    step.summary(36_000)
    step.steps_line(1_020, 36_113)
    return step


def queue_fills_after_the_start(last_us: float = 6_000) -> Step:
    """The device starves for the first 3 ms, because Keras waited for it after the step before; then the host is
    ahead, and done `last_us` before the device."""
    step = Step()
    step.call(8_000)
    step.ops(1_000, 40, apart=60.0)  # until 3.4 ms, hungry for launches
    free = 3_400.0
    length = (8_000 - 600 + last_us - free) / 40
    for at in range(40):
        launch = 3_350 + at * 100.0
        op = f"gradient_tape/model/conv2d_{at}/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter"
        step.kernel(GEMM, launch, max(free, launch + 30), length, op=op)
        free = max(free, launch + 30) + length
    step.read_logs(8_100, waits=max(5.0, free - 8_100))
    return step


def batch_copy_is_named_like_the_iterator() -> Step:
    """`IteratorGetNext/_1:_Send` takes 4.3 ms and its driver call 3.8; the iterator itself was waited for 0.1 ms."""
    step = Step()
    step.call(18_000)
    step.iterator(1_000, 140)
    step.process("tf_Compute/1340033031", 1_100, 16_000)
    step.send_batch(1_300, 3_790, thread="tf_Compute/1340033031", copied=5_060)
    step.ops(5_200, 200)
    step.read_logs(18_050)
    return step


def blocking_first_driver_calls() -> Step:
    """Three threads call the driver at the same moment, and it returns after 10 and 17 ms; then all goes well."""
    step = Step()
    step.call(48_000)
    step.iterator(1_200, 6_300)
    for thread in ("tf_Compute/1340033031", "tf_Compute/-2079987971"):
        step.process(thread, 7_500, 39_000)
    step.kernel(ADD, 8_000, 8_145, 3, op="Adam/add:AddV2", takes=10_023, thread="tf_Compute/1340033031")
    step.send_batch(7_980, 17_040, thread="tf_Compute/-2079987971", copied=13_050)
    step.copy(
        "H2D", 8_000, 12_920, 2, 256, takes=17_078, edge="IteratorGetNext/_3:_Send#from=IteratorGetNext,to=x#"
    )
    step.ops(25_100, 360)
    step.read_logs(48_050)
    return step


def map_function_on_the_steps_threads() -> Step:
    """The pipeline gathers a later batch on a thread of the step, in an executor of another id (a Mac's CPU: 31 of
    80 ms). Hosts without a name, times in whole microseconds."""
    step = Step(gpu=False)
    step.call(80_694, executor=2_930)
    step.iterator(3_829, 463)
    pool = "tf_data_iterator_resource/9"
    step.host(pool, "InstantiatedCapturedFunction::RunAsync", 4_341, 22, id=PIPELINE_ID)
    step.host(pool, "FunctionRun", 4_345, 15, id=PIPELINE_ID)
    step.process("tf_Compute/3581220", 4_379, 31_002, PIPELINE_ID)
    step.host("tf_Compute/3581220", "GatherV2:GatherV2", 4_394, 30_944, is_eager=0)
    step.process("tf_Compute/3581221", 4_424, 75_000)
    for name, start, length in (
        ("sequential/conv2d/Relu:_FusedConv2D", 4_426, 24_830),
        ("gradient_tape/sequential/conv2d/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter", 29_300, 49_000),
    ):
        step.host("tf_Compute/3581221", name, start, length, group_id=0, is_eager=0)
    step.summary(86_515)
    return step


def variables_older_than_the_window(weights: int = 4, each: int = 1 << 20) -> Step:
    """No event states what the variables take; each update frees its gradient as soon as it is launched."""
    step, thread = Step(), "tf_Compute/-1779941186"
    step.call(14_000)
    held = 3 * weights * each + 300_000
    gpu = Allocator(step._line("/host:CPU", thread), live=held, peak=held)

    def at(time: float) -> int:
        return round((STARTED_US + time) * 1e3)

    gpu.allocate(at(1_000), 1 << 30, 8 << 20, "model/dense/Relu", shape="[64,32768]")
    for number in range(weights):
        start, address = 2_000 + 400.0 * number, 2 << 30 | number << 24
        op = f"gradient_tape/model/dense_{number}/MatMul_1"
        step.kernel(GEMM, start, start + 30, 50, op=f"{op}:MatMul")
        gpu.allocate(at(start + 5), address, each, op, shape="[512,512]")
        update = f"Adam/Adam/update_{number}/ResourceApplyAdam"
        step.kernel(ADD, start + 100, start + 130, 10, op=f"{update}:ResourceApplyAdam")
        gpu.free(at(start + 115), address)
    gpu.free(at(9_000), 1 << 30)
    step.read_logs(14_100)
    step.steps_line(1_212, 14_300)
    return step


def long_op_hidden_on_a_cpu() -> Step:
    """A bias' gradient runs as long as the filter's beside it, on another thread: it is hardly in the step at all,
    and the second longest of its ops. What looks like elementwise work is nearly all pooling."""
    step = Step(gpu=False)
    step.call(60_000)
    step.iterator(1_000, 200)
    own, other = "tf_Compute/3581221", "tf_Compute/3581222"
    step.process(own, 1_300, 57_000)
    step.process(other, 20_100, 27_500)
    gradient = "gradient_tape/sequential/conv2d"
    for thread, name, start, length in (
        (own, "sequential/conv2d/Relu:_FusedConv2D", 1_400, 10_000),
        (own, "sequential/average_pooling2d/AvgPool:AvgPool", 11_500, 5_400),
        (own, "sequential/activation/Relu:Relu", 17_000, 600),
        (own, f"{gradient}/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter", 20_000, 36_000),
        (other, f"{gradient}/BiasAdd/BiasAddGrad:BiasAddGrad", 20_200, 26_800),
    ):
        step.host(thread, name, start, length, group_id=0, is_eager=0)
    return step


def strategys_iterator() -> Step:
    """A distribution strategy with one device: another iterator, whose pipeline waits and copies on threads of the
    step, and flags that travel to the host and back within the step."""
    step = Step()
    step.call(12_000)
    step.iterator(1_900, 350, op="IteratorGetNextAsOptional")
    pool = "tf_data_iterator_resource/9"
    step.host(pool, "InstantiatedCapturedFunction::RunWithBorrowedArgs", 2_280, 1_320, id=PIPELINE_ID)
    other = "tf_Compute/83013795"
    step.process(other, 2_340, 1_300, PIPELINE_ID)
    name = "MultiDeviceIteratorGetNextFromShard"
    step.host(other, f"{name}:{name}", 2_400, 1_200, is_eager=0)
    step.process("tf_Compute/-1929277381", 2_460, 560)
    step.copy("D2H", 2_700, 2_800, 1.2, 1, edge="Cast_1/_9:_Send#from=Cast_1,to=cond_1/switch_pred/_11#")
    step.ops(3_700, 130)
    step.read_logs(12_050)
    return step


def several_steps_of_keras_3(count: int = 4, per_call: int = 1) -> Step:
    """Keras 3 on TensorFlow 2.21: another function, eager ops that read the logs, a callback between the calls."""
    step = Step(function="__inference_multi_step_on_iterator_2091", python_call="multi_step_on_iterator")
    for n in range(count):
        begin = 20_000.0 * n
        step.call(10_000, start=begin)
        for at in range(per_call):
            step.host(
                "tf_data_iterator_get_next/7",
                "IteratorGetNextOp::DoCompute",
                begin + 950 + at,
                0.5,
                id=STEP_ID,
            )
        step.ops(begin + 1_000, 140)
        for at, name in enumerate(("OptionalHasValue", "OptionalGetValue", "ReadVariableOp")):
            step.host("python3", "EagerExecute", begin + 10_100 + 100 * at, 50, eager_op=name)
            step.host("python3", f"EagerLocalExecute: {name}", begin + 10_101 + 100 * at, 48)
        step.summary(begin + 12_000)
    return step
