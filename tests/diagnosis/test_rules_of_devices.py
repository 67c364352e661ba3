"""MP7 on made-up accounts: what one device shows, launches of one process, and strategies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.diagnosis.remedies.choosing import choose
from mpprof.diagnosis.signals import Case, Signals
from mpprof.model.account import Account, DeviceAccount
from tests.builders import cases as c
from tests.builders.windows import HALF, REDUCE
from tests.diagnosis.saying import finding, says
from tests.paths import NO_TRACES, SHARED
from tests.real import truth
from tests.traces.kineto import Kineto

FLOAT32_SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SIXTEEN_BIT_SUM = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TRANSPOSES = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)2>(cudnn::ops::nchw2nhwc_params_t<float>, __half const*, __half*)"
MIRRORED: dict[str, Any] = {"replicas": 2, "distribution": "MirroredStrategy"}


def exchange(ms: float, kernel: str = FLOAT32_SUM, **facts: Any) -> Any:
    return c.cell("comm", ms, kernel=kernel, family="comm", **facts)


def of_two(first: Account, second: Account) -> Account:
    other: DeviceAccount = replace(second.main, device="/device:GPU:1", cells=())
    return replace(first, devices=(first.main, other))


def case(account: Account, **facts: Any) -> Case:
    return c.case(account=account, records=c.facts(**{**MIRRORED, **facts}))


def test_one_device_tells_what_is_exposed_and_not_what_of_it_is_waiting() -> None:
    alone = case(c.account(exchange(20.0)))
    found = finding("MP701", alone)
    assert (found.severity, found.confidence, found.cost_ns_per_step) == ("warning", "low", None)
    assert "20.0 % of the step" in found.summary
    assert says("MP704", alone).startswith("unable: one device's trace does not show")


@pytest.mark.parametrize(
    ("kernel", "says_of_it"),
    [
        (FLOAT32_SUM, "warning"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "warning"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "warning"),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", "clear"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "clear"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "clear"),
        ("void deep_ep::reduce_dispatch<8>(int4*, float*, int*)", "clear"),  # opaque: 16 bytes at a time
    ],
)
def test_the_precision_of_a_sum_is_in_its_kernel_s_name(kernel: str, says_of_it: str) -> None:
    assert says("MP701", case(c.account(exchange(20.0, kernel)))) == says_of_it


def test_the_shapes_of_its_op_tell_the_precision_of_a_generic_kernel() -> None:
    generic = exchange(20.0, "ncclDevKernel_Generic_4", op_type="CollectiveReduceV2", shapes="(float[1000])")
    assert says("MP701", case(c.account(generic))) == "warning"


def test_late_launches_of_one_process_are_the_strategy_s_and_not_the_device_s() -> None:
    first = c.account(exchange(20.0), step_ms=100.0)
    late = c.account(exchange(2.0), c.cell("idle_launch", 18.0), step_ms=100.0)
    both = case(of_two(first, late))
    found = finding("MP702", both)
    assert "/device:GPU:1 is late in every step" in found.summary
    assert found.cost_ns_per_step == pytest.approx(18e6)
    assert says("MP704", both) == "clear"
    loop = case(of_two(first, late), distribution="DataParallel")
    assert says("MP702", loop).startswith("not applicable")
    assert says("MP704", loop) == "warning"


def test_without_communication_in_the_traces_the_evidence_is_of_the_devices_work() -> None:
    """Their steps are equally long, whatever they wait for: what was compared is what they worked."""
    both = of_two(c.account(c.cell("idle_other", 40.0)), c.account())
    found = finding("MP704", case(both))
    stated = {each.name: each.value for each in found.evidence if each.unit == "ns"}
    assert stated == {
        "work of the device, /device:GPU:1": pytest.approx(100e6),
        "the same, /device:GPU:0": pytest.approx(60e6),
    }
    assert found.cost_ns_per_step == pytest.approx(40e6)


def test_a_device_whose_launches_are_late_is_not_told_of_its_clock() -> None:
    """A public trace of two GPUs whose kernels take the same, 15.16 and 15.17 ms: one process launches later."""
    late = c.account(exchange(2.0), c.cell("idle_launch", 18.0), step_ms=100.0)
    both = case(of_two(c.account(exchange(20.0), step_ms=100.0), late), distribution="DataParallel")
    (remedy,) = finding("MP704", both).remedies
    assert "process" in remedy.text
    assert "clock" not in remedy.text


SUMS = ("DistributedDataParallel.forward", "c10d::allreduce_")


@pytest.mark.parametrize(("calls", "said", "snippet"), [(2, "smaller", "=5,"), (40, "larger", "=100,")])
def test_few_exchanges_are_not_told_to_become_fewer(calls: int, said: str, snippet: str) -> None:
    """Seen: 2 sums a step, of 5.7 and 17.6 MB. Of buckets of 100 MB the only one waits for the whole backward pass."""
    trace = replace(c.trace(), strings=("aten::mm", *SUMS))
    account = c.account(exchange(60.0, SIXTEEN_BIT_SUM, calls_per_step=calls))
    remedies = choose("MP705", Signals(c.case(records=None, trace=trace, account=account)))
    (buckets,) = (each for each in remedies if "buckets in Distributed" in each.text)
    assert f"{said} buckets" in buckets.text
    assert f"bucket_cap_mb{snippet}" in buckets.snippet


@pytest.mark.parametrize(("reduction", "gain_us"), [(400.0, 100.0), (150.0, 400.0)])
def test_work_while_communication_goes_on_gains_nothing(
    reduction: float, gain_us: float, tmp_path: Path
) -> None:
    """Of 400 us of transposes a step 300 run beside a sum that lasts 100 us longer than they, or ends before them."""
    k = Kineto()
    for step in range(4):
        at = 2_000.0 * step
        k.host("user_annotation", f"ProfilerStep#{step}", at, 2_000)
        k.launch(HALF, at + 5, at + 20, 900)
        k.launch(TRANSPOSES, at + 6, at + 920, 100)
        for more in range(3):
            k.launch(TRANSPOSES, at + 7 + more, at + 1_020 + 100 * more, 100)
        k.launch(REDUCE, at + 12, at + 1_020, reduction, stream=20)
        k.launch(
            "Memcpy HtoD (Pageable -> Device)",
            at + 13,
            at + 1_400,
            200,
            cat="gpu_memcpy",
            bytes=1 << 20,
            stream=21,
        )
        k.host("cuda_runtime", "cudaDeviceSynchronize", at + 30, 1_600)
    found = workflows.diagnose(k.write(tmp_path / "w.pt.trace.json"))
    (layout,) = (each for each in found.findings if each.code == "MP405")
    assert layout.cost_ns_per_step == pytest.approx(400e3)
    assert layout.gain_ns_per_step == pytest.approx(gain_us * 1e3)
    told = [each.value for each in layout.evidence if "communication goes on" in each.name]
    assert told == ([pytest.approx(400e3 - gain_us * 1e3)] if gain_us < 400 else [])
    cells = {cell.category: cell.held_ns_per_step for cell in found.account.main.cells}
    assert cells["copy"] == 0.0  # 20 us of it beside the sum: the account gives them to the sum


@pytest.mark.parametrize(("names", "buckets"), [(("DistributedDataParallel.forward",), True), ((), False)])
def test_who_exchanges_gradients_one_by_one_is_told_of_buckets(names: tuple[str, ...], buckets: bool) -> None:
    """404 all-reduces a step in a public trace, one for each parameter, and no wrapper round the model."""
    trace = replace(c.trace(), strings=("aten::mm", "c10d::allreduce_", *names))
    told = " ".join(each.text for each in choose("MP705", Signals(c.case(records=None, trace=trace))))
    assert ("larger buckets" in told, "no_sync" in told) == (buckets, buckets)
    assert ("exchange many gradients at once" in told) is not buckets
    forward = c.case(records=None, trace=trace, account=replace(c.account(), unit="part"))
    assert [each.text for each in choose("MP705", Signals(forward))] == [
        "a larger batch on each device: more work for the same bytes"
    ]


def test_mp705_one_device_shows_what_is_exposed_whatever_is_sent() -> None:
    """Seen with 62.6 and 23.2 % of a step exposed, and no finding."""
    alone = case(c.account(exchange(62.6, SIXTEEN_BIT_SUM)))
    found = finding("MP705", alone)
    assert (found.severity, found.confidence, found.cost_ns_per_step) == ("warning", "low", None)
    assert "62.6 % of the step" in found.summary
    assert found.said.endswith("or waits for them, and computes nothing for 62.6 % of the step")
    assert found.remedies[0].text.startswith("compare the traces of all devices")
    float32 = c.case(account=c.account(exchange(20.0)), records=c.facts("float32", **MIRRORED))
    assert says("MP705", float32) == "warning"
    assert says("MP705", case(c.account(exchange(20.0)))) == "clear"  # which MP701 has
    assert says("MP705", case(c.account(exchange(2.9, SIXTEEN_BIT_SUM)))) == "clear"


def test_mp705_costs_what_is_transfer_and_what_work_could_hide() -> None:
    def both(exposed: float, hidden: float = 0.0, waits: float = 0.0) -> Case:
        sends = exchange(exposed, SIXTEEN_BIT_SUM, busy_ns_per_step=(exposed + hidden) * c.MS)
        return case(of_two(c.account(sends), c.account(exchange(exposed - waits, SIXTEEN_BIT_SUM))))

    assert finding("MP705", both(20.0)).cost_ns_per_step == pytest.approx(20e6)
    # 70 ms of the 100 are exposed, and of the 30 ms of work 10 hide some already.
    assert finding("MP705", both(70.0, hidden=10.0)).cost_ns_per_step == pytest.approx(20e6)
    # A fortieth is waiting for the other device.
    assert finding("MP705", both(20.0, waits=0.5)).cost_ns_per_step == pytest.approx(19.5e6)


SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("kernel", "phase"),
    [
        (SEND, "other"), ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "forward"),
        (SIXTEEN_BIT_SUM, "forward"),
    ],
)  # fmt: skip
def test_what_is_exchanged_within_a_pass_is_not_said_to_be_hidden(kernel: str, phase: str) -> None:
    """A public trace of two GPUs sends activations between its layers: the next kernel waits for them, and a larger
    batch sends as much more."""
    sends = exchange(20.0, kernel, phase=phase)
    for made in (c.account(sends), of_two(c.account(sends), c.account(exchange(20.0, kernel, phase=phase)))):
        found = finding("MP705", case(made))
        assert found.gain_ns_per_step is None
        assert "does not show work that could go on without what is sent" in found.summary
        assert not any(each.larger_batch or "gradient" in each.text for each in found.remedies)
        assert "divide the batch into parts" in " ".join(each.text for each in found.remedies)


def test_gradients_are_hidden_behind_the_backward_pass_alone() -> None:
    """40 ms of sums, 25 of forward, 15 of backward, 20 of update: no gradient exists while the forward pass runs."""
    parts = (
        exchange(40.0, SIXTEEN_BIT_SUM),
        c.healthy(25, phase="forward"),
        c.healthy(15, phase="backward"),
        c.cell("optimizer", 20),
    )
    found = finding("MP705", case(of_two(c.account(*parts), c.account(exchange(40.0, SIXTEEN_BIT_SUM)))))
    assert found.gain_ns_per_step == pytest.approx(15e6)


def test_devices_that_send_nothing_are_not_held_against_each_other() -> None:
    slow = of_two(c.account(), c.account(c.cell("idle_input", 20.0)))
    assert says("MP704", case(slow, distribution="DataParallel")).startswith("unable: no collective")


@pytest.mark.parametrize("code", ["MP701", "MP702", "MP703", "MP704", "MP705"])
def test_a_run_on_one_device_has_nobody_to_wait_for(code: str) -> None:
    alone = c.case(account=c.account(), records=c.facts(replicas=1))
    assert says(code, alone) == "not applicable: the run trains on one device"


def test_a_window_of_several_devices_is_not_said_to_train_on_one() -> None:
    window = of_two(c.account(), c.account())
    unknown = c.facts(replicas=None)
    several = replace(c.case(account=window, records=unknown), account=None, window=window)
    assert says("MP704", several).startswith("unable: ")
    one = replace(several, window=c.account())
    assert says("MP704", one) == "not applicable: only one device is at work in the trace"


def test_launches_are_those_of_one_device_and_the_others_stand_beside_it() -> None:
    first = c.account(c.cell("idle_launch", 40.0), step_ms=100.0)
    both = case(of_two(first, c.account(c.cell("idle_launch", 12.0), step_ms=100.0)))
    found = finding("MP302", both)
    assert (found.cost_ns_per_step, found.summary.partition(" waiting")[0]) == (
        pytest.approx(40e6), "the device idles 40.0 ms a step (40.0 %)",
    )  # fmt: skip
    beside = [each for each in found.evidence if each.name.startswith("step idle for launches on")]
    assert [(each.name, each.value) for each in beside] == [
        ("step idle for launches on the other device", "12.0 ms")
    ]
    assert "on the other" not in str(finding("MP302", case(first)).evidence)


def test_a_program_dispatched_to_eight_devices_has_the_kernels_of_one() -> None:
    """The raw events between the starts of the first and the fourth run of the program on the busiest device."""
    file = SHARED / "mi300-jax" / "jax_conv_minimal_08.xplane.pb"
    if not file.exists():
        pytest.skip(NO_TRACES)
    space = truth.protobuf().XSpace()
    space.ParseFromString(file.read_bytes())
    (plane,) = (plane for plane in space.planes if plane.name == "/device:GPU:0")
    work = sorted(
        (line.timestamp_ns + event.offset_ps / 1000, plane.event_metadata[event.metadata_id].name)
        for line in plane.lines
        for event in line.events
    )
    starts = [at for at, name in work if name == "loop_transpose_fusion.kd"]
    within = [name for at, name in work if starts[0] <= at < starts[3]]
    copies = sum("copyBuffer" in name for name in within)
    found = {each.code: each for each in workflows.diagnose(workflows.load(file)).findings}["MP302"]
    told = {each.name: each.value for each in found.evidence}
    assert told["kernels per step"] == (len(within) - copies) / 3
    assert told["copies and fills per step"] == copies / 3
    assert "step idle for launches on the other 7 devices" in told
