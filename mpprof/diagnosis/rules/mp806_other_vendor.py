"""The device is not an NVIDIA GPU: mixed precision means something else there.

What it means
    On x86 CPUs without AMX float16 is emulated and slower than float32. A TPU computes float32 matrix work in
    bfloat16 already. AMD's matrix cores take both 16-bit types, and some paths are much better in bfloat16.

How we know
    The kind and vendor of the device that the run or the trace names.

What it costs
    Not known without a float32 baseline on the same device.

When to ignore
    When a CPU only tests what will run on a GPU.

Sources
    TensorFlow guide "Mixed precision" (x86 CPUs without AMX "significantly slower"; TPUs: mixed_bfloat16).
    tf#97645 and keras#21520 (RX 9070 XT, 210 ms -> 3 s a step in float16). pt#86270 (bfloat16 on a CPU).
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP806", "other-vendor", "Mixed precision means something else on this device"
ABOUT = "cards of other vendors"


def judge(signals: Signals) -> Outcome:
    accelerator = need(signals.accelerator)
    device = known(signals.device)
    if accelerator == "gpu" and device is not None and device.vendor == "nvidia":
        return NotApplicable("the device is NVIDIA's")
    dtype = need(signals.compute_dtype)
    if dtype not in HALF_DTYPES:
        return NOT_IN_16_BITS
    on_cpu_in_bf16 = accelerator == "cpu" and dtype == "bfloat16"
    if accelerator == "cpu":
        summary = (
            f"training ran on a CPU: without instructions for {dtype} it emulates them, slower than float32"
        )
        found = "CPU"
    elif accelerator == "tpu":
        if dtype == "bfloat16":
            return Clear("bfloat16 is what a TPU computes in")
        summary = "a TPU has no float16 matrix unit"
        found = "TPU"
    else:
        device = need(signals.device)
        if device.vendor == "unknown":
            return NotApplicable("the vendor is not stated")
        found = device.name or device.vendor.upper()
        summary = f"{found}: which 16-bit type is the faster one differs by card and library"
    return Found(
        summary=summary,
        cases=("cpu bfloat16",) if on_cpu_in_bf16 else (accelerator,),
        evidence=(evidence.text("device", found), evidence.text("compute dtype", dtype)),
        confidence="medium" if accelerator == "gpu" else "high",
        severity="warning" if accelerator == "tpu" else "info",
    )


def check_model(model: Untrained) -> Iterator[Note]:
    card = model.gpu
    if card is None or device_peaks.vendor(card) in MAYBE_NVIDIA:
        return
    tpu = card.kind == "tpu"
    if not tpu and device_peaks.has_matrix_units(card) is False:  # MP801 speaks of it
        return
    layers = model.computing_in("float16") if tpu else model.computing_in(*HALF_DTYPES)
    if not layers:
        return
    why = "a TPU has no float16 matrix unit" if tpu else "which 16-bit type is faster differs by library"
    yield Note(
        "warning" if tpu else "info",
        None,
        f"{card.name or card.vendor.upper()}: {why} ({evidence.listed([f.name for f in layers])})",
        model.snippet(CODE, "tpu" if tpu else "gpu"),
    )
