"""Out-of-memory errors of three frameworks, shortened: first formats as in tensorflow/tensorflow#47820 and #3304,
jax-ml/jax#13428 and pytorch/pytorch#16417 with numbers of our own, then what machines printed, each with its source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import mpprof as mpprof_api
from mpprof.analysis.memory import out_of_memory
from mpprof.diagnosis.out_of_memory.advice import advise
from mpprof.diagnosis.out_of_memory.failure import failure
from mpprof.model.run import Ended, Run
from mpprof.report import json as documents
from tests.builders.read_back import brief
from tests.cli.conftest import Mpprof, mpprof  # noqa: F401
from tests.paths import SAMPLES

GIB, MIB = 1 << 30, 1 << 20
LOG = "2021-03-15 17:16:5{}.3: {} tensorflow/core/common_runtime/bfc_allocator.cc:1039] {}"
BFC = "\n".join(
    LOG.format(at, letter, said)
    for at, (letter, said) in enumerate(
        (
            ("W", "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB (rounded to 1610612736)"
                  "requested by op model/conv2d_3/Conv2D"),
            ("I", "84 Chunks of size 512 totalling 42.0KiB"),
            ("I", "12 Chunks of size 268435456 totalling 3.00GiB"),
            ("I", "2 Chunks of size 536870912 totalling 1.00GiB"),
            ("I", "Sum Total of in-use chunks: 4.00GiB"),
            ("I", "Stats: \nLimit:                 4831838208\nInUse:                 4295010304\n"
                  "MaxInUse:              4700000000\nNumAllocs:                   20717"),
        )
    )
)  # fmt: skip
KERAS = """
tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,96,256,256]
 and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
\t [[{{node model/conv2d_3/Conv2D}}]] [Op:__inference_train_function_10]
"""
XLA = """jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9663676416 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    1.00GiB
              constant allocation:         0B
        maybe_live_out allocation:  512.00MiB
     preallocated temp allocation:    7.50GiB
                 total allocation:    9.00GiB
Peak buffers:
\tBuffer 1:
\t\tSize: 3.00GiB
\t\tOperator: op_name="jit(train_step)/jit(main)/jvp(Net)/block/conv/conv_general_dilated" source_file="net.py" source_line=40
\t\tXLA Label: custom-call
\t\tShape: f32[64,128,128,768]
\t\t==========================

\tBuffer 2:
\t\tSize: 64.00MiB
\t\tEntry Parameter Subshape: bf16[4096,8192]
\t\t==========================
"""
TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 24.00 GiB "
    "of which 512.00 MiB is free. Including non-PyTorch memory, this process has 19.50 GiB memory in use. Of the "
    "allocated memory 12.00 GiB is allocated by PyTorch, and 7.00 GiB is reserved by PyTorch but unallocated."
)
OLD_TORCH = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.50 MiB already "
    "allocated; 3.03 GiB free; 1.25 GiB reserved in total by PyTorch)"
)


def test_tensorflows_summary_and_error() -> None:
    found = out_of_memory.read(BFC + KERAS)
    assert (found.framework, found.device, found.op) == ("tensorflow", "GPU_0_bfc", "model/conv2d_3/Conv2D")
    assert (found.asked_bytes, found.limit_bytes, found.used_bytes) == (1610612736, 4831838208, 4295010304)
    assert found.loose_bytes == 4831838208 - 4295010304
    largest = found.filled[:3]
    assert [(each.count, each.bytes) for each in largest] == [(12, 3 * GIB), (1, 1536 * MIB), (2, GIB)]
    assert (largest[1].dtype, largest[1].shape) == ("float", "[64,96,256,256]")
    advice = advise(found)
    assert [each.cause for each in advice] == ["batch", "precision"]
    assert [each.cause for each in advise(found, policy="mixed_float16")] == ["batch"]
    assert "at most 73 %" in advice[0].text


def test_tensorflows_error_alone() -> None:
    found = out_of_memory.read(KERAS)
    assert (found.asked_bytes, found.limit_bytes) == (64 * 96 * 256 * 256 * 4, None)


def test_xlas_list_of_buffers() -> None:
    found = out_of_memory.read(XLA)
    assert (found.framework, found.asked_bytes) == ("xla", 9 * GIB)
    assert found.parts == {"arguments": GIB, "outputs": 512 * MIB, "temporaries": 7680 * MIB}
    assert [(each.dtype, each.shape, each.bytes) for each in found.filled] == [
        ("f32", "[64,128,128,768]", 3 * GIB), ("bf16", "[4096,8192]", 64 * MIB),
    ]  # fmt: skip
    assert found.filled[0].name.endswith("conv_general_dilated")
    assert found.filled[1].name == "argument of the step"


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.", 16 * GIB),
        ("RuntimeError: Resource exhausted: Out of memory while trying to allocate 1048576 bytes.", MIB),
        ("JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.50GiB.", 1536 * MIB),
        (
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Failed to allocate request for 2.0GiB (9B) on",
            2 * GIB,
        ),
    ],
)
def test_xlas_message_alone_says_what_did_not_fit(said: str, asked: int) -> None:
    """As in onpix/LLNeRF#9, sokrypton/ColabFold#65 and google-deepmind/alphafold#1023; the last one counts."""
    earlier = "RESOURCE_EXHAUSTED: Out of memory allocating 77 bytes.\n"
    found = out_of_memory.read(f"{earlier}Traceback\n{said}\n")
    assert (found.framework, found.asked_bytes, found.limit_bytes, found.filled) == ("xla", asked, None, ())
    assert advise(found, 32) == ()


def test_tensorflows_error_of_a_compiled_step() -> None:
    """As in NVIDIA/DeepLearningExamples#405; later TensorFlows name the error's class."""
    for kind in ("  (0) Resource exhausted", "errors_impl.ResourceExhaustedError"):
        found = out_of_memory.read(f"{kind}: Out of memory while trying to allocate 68852648264 bytes.\n")
        assert (found.framework, found.asked_bytes) == ("xla", 68852648264)


def test_pytorchs_message_in_both_wordings() -> None:
    found = out_of_memory.read(TORCH)
    assert (found.asked_bytes, found.limit_bytes, found.used_bytes) == (2 * GIB, 24 * GIB, 12 * GIB)
    assert (found.loose_bytes, found.others_bytes, found.device) == (7 * GIB, 4 * GIB, "GPU 1")
    assert [each.cause for each in advise(found)] == ["fragmentation", "other processes"]
    assert out_of_memory.read(TORCH.replace("CUDA", "HIP")) == found
    old = out_of_memory.read(OLD_TORCH)
    assert (old.limit_bytes, old.used_bytes) == (6 * GIB, round(781.5 * MIB))
    assert old.loose_bytes == 1280 * MIB - round(781.5 * MIB)
    assert old.free_bytes == round(3.03 * GIB)


@pytest.mark.parametrize(
    ("said", "free", "loose"),
    [
        # pytorch/pytorch#59778
        (OLD_TORCH, "3.03 GiB", 1280 * MIB - round(781.5 * MIB)),
        # pytorch/pytorch#40002: the host's memory was full
        (
            "CUDA out of memory. Tried to allocate 50.00 MiB (GPU 0; 6.00 GiB total capacity; 693.78 MiB already "
            "allocated; 3.91 GiB free; 18.22 MiB cached)",
            "3.91 GiB", round(18.22 * MIB),
        ),
        # levihsu/OOTDiffusion#167
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of "
            "4.00 GiB of which 2.80 GiB is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is "
            "reserved by PyTorch but unallocated.",
            "2.80 GiB", 0,
        ),
    ],
)  # fmt: skip
def test_more_free_than_was_asked_for_is_said(said: str, free: str, loose: int) -> None:
    found = out_of_memory.read(said)
    assert found.loose_bytes == loose
    (advice,) = advise(found, 32)
    assert advice.cause == "fragmentation"
    assert advice.text.startswith(
        f"{free} of the card is free, more than was asked for, and the driver refused"
    )
    assert "expandable_segments" in advice.snippet


# What machines printed, shortened to the lines that matter. The source of each is the public issue named above it.

# mozilla/DeepSpeech#1940 (2019-03-11, TensorFlow 1.12; the error of the op is the title)
REAL_TENSORFLOW = """\
2019-03-11 09:52:43.509925: I tensorflow/core/common_runtime/bfc_allocator.cc:641] 10 Chunks of size 16777216 totalling 160.00MiB
2019-03-11 09:52:43.509931: I tensorflow/core/common_runtime/bfc_allocator.cc:641] 2 Chunks of size 134217728 totalling 256.00MiB
2019-03-11 09:52:43.509936: I tensorflow/core/common_runtime/bfc_allocator.cc:641] 2 Chunks of size 3576881152 totalling 6.66GiB
2019-03-11 09:52:43.509942: I tensorflow/core/common_runtime/bfc_allocator.cc:645] Sum Total of in-use chunks: 7.09GiB
2019-03-11 09:52:43.509950: I tensorflow/core/common_runtime/bfc_allocator.cc:647] Stats:\x20
Limit:                 10925244416
InUse:                  7613320960
MaxInUse:               7613320960

OOM when allocating tensor with shape[2048,436631]
"""

# patrickbryant1/SpeedPPI#1 (a 2080 Ti)
REAL_XLA = """\
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 10228218416 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    2.86GiB
              constant allocation:    38.7KiB
        maybe_live_out allocation:  462.23MiB
     preallocated temp allocation:    9.53GiB
  preallocated temp fragmentation:  784.48MiB (8.04%)
                 total allocation:   12.83GiB
              total fragmentation:    1.17GiB (9.13%)
Peak buffers:
        Buffer 1:
                Size: 1.57GiB
                Operator: op_name="jit(apply_fn)/jit(main)/alphafold/layer_norm_input/jit(_var)/reduce_sum[axes=(2,)]" source_line=1446
                XLA Label: fusion
                Shape: f32[5120,1286,64]
"""

# alpa-projects/alpa#759: the same through another program's log, which sets its own name before each line
_RAY = "\x1b[2m\x1b[36m(MeshHostWorker pid=489)\x1b[0m "
REAL_XLA_IN_A_LOG = "BufferAssignment OOM Debugging.\n" + "".join(
    f"{_RAY}{line}\n"
    for line in (
        "BufferAssignment stats:",
        "             parameter allocation:    7.78GiB",
        "              constant allocation:         0B",
        "        maybe_live_out allocation:  301.25MiB",
        "     preallocated temp allocation:    3.83GiB",
        "                 total allocation:   11.90GiB",
        "Peak buffers:",
        "\tBuffer 1:",
        "\t\tSize: 3.83GiB",
        "\t\tXLA Label: convert",
        "\t\tShape: f32[250880,4096]",
    )
)

# ROCm/legacy-rocm-build#3364 (2024-06-24): the same after another message
REAL_XLA_ON_ROCM = """\
E external/xla/xla/stream_executor/rocm/rocm_driver.cc:1268] failed to allocate 154.06GiB (165425291480 bytes) from device: HIP_ERROR_OutOfMemory
E external/xla/xla/pjrt/pjrt_stream_executor_client.cc:2732] Execution of replica 0 failed: RESOURCE_EXHAUSTED: Failed to allocate request for 154.06GiB (165425291480B) on device ordinal 0
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:   10.04GiB
        maybe_live_out allocation:   28.74GiB
     preallocated temp allocation:  154.06GiB
                 total allocation:  192.84GiB
Peak buffers:
"""

# erfanzar/EasyDeL#142 (2024-04-21): a TPU of 16 GB, of which 15.48 are the program's
REAL_TPU = """\
XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 30.21G of 15.48G hbm. Exceeded hbm capacity by 14.73G.

Total hbm usage >= 30.73G:
    reserved        530.00M
    program          14.31G
    arguments        15.90G

Output size 1.0K; shares 0B with arguments.

Program hbm requirement 14.31G:
    global           481.0K
    scoped           512.0K
    HLO temp         14.31G (100.0% utilization: Unpadded (14.25G) Padded (14.25G), 0.4% fragmentation (62.60M))

  Largest program allocations in hbm:

  1. Size: 1.46G
     Operator: op_name="pjit(generate)/jit(main)/FlaxGemmaForCausalLMModule/model/embed_tokens/convert_element_type" source_file="a.py" source_line=3
     Shape: bf16[256000,3072]{1,0:T(8,128)(2,1)}
     Unpadded size: 1.46G
     XLA label: convert.15982 = convert(param.72)
     Allocation type: HLO temp
     ==========================
"""

# DifferentiableUniverseInitiative/flowpm#27 (2019-11-11): TensorFlow on a TPU, padded to 32 times the size
REAL_TPU_OF_TENSORFLOW = """\
Compilation failure: Ran out of memory in memory space hbm. Used 41.74G of 16.00G hbm. Exceeded hbm capacity by 25.74G.

Total hbm usage >= 41.74G:
    reserved        528.00M
    program          41.22G
    arguments       unknown size

Output size unknown.

Program hbm requirement 41.22G:
    HLO temp         41.19G (24.2% utilization, 0.7% fragmentation (293.84M))

  Largest program allocations in hbm:

  1. Size: 32.00G
     Operator: op_type="FloorMod" op_name="slicewise_79/cic_update/FloorMod"
     Shape: s32[8388608,8,4]{2,1,0:T(8,128)}
     XLA label: %copy.40488 = s32[8388608,8,4]{2,1,0:T(8,128)} copy(s32[8388608,8,4]{0,2,1:T(4,128)} %x)
"""

# pytorch/xla#1965 (2020-05-04): the same list in a log, without an operator
_XLA_UTIL = "2020-05-04 09:05:40.719796: E    1578 tensorflow/compiler/xla/xla_client/xla_util.cc:76] "
REAL_TPU_IN_A_LOG = "".join(
    f"{_XLA_UTIL}{line}\n"
    for line in (
        "Ran out of memory in memory space hbm. Used 20.00G of 15.98G hbm. Exceeded hbm capacity by 4.02G.",
        "  Largest program allocations in hbm:",
        "  3. Size: 6.00G",
        "     Shape: u32[12582912,1]{1,0:T(8,128)}",
        "     Unpadded size: 48.00M",
        "     XLA label: %fusion.44044.remat4 = u32[12582912,1]{1,0:T(8,128)} fusion(u32[]{:T(256)} %add)",
    )
)

# NovaSky-AI/SkyRL#624 (2025-11-03): the driver's own allocator
REAL_ASYNC = """\
E1103 18:23:55.103160 3413767 gpu_cudamallocasync_allocator.cc:361] gpu_async_1 cuMemAllocAsync failed to allocate 1225195446464 bytes: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory
 Reported by CUDA: Free memory/Total memory: 22635544576/85095874560
E1103 18:23:55.103186 3413767 gpu_cudamallocasync_allocator.cc:366] Stats: Limit:                               0
InUse:                     61982909300
MaxInUse:                  61982909300
LargestFreeBlock:                    0
"""

# marl/crepe#99 (2024-01-08)
NO_FAILURE = (
    "2024-01-08 22:51:53.513126: W external/local_tsl/tsl/framework/bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out "
    "of memory trying to allocate 4.59GiB with freed_by_count=0. The caller indicates that this is not a failure, but "
    "this may mean that there could be performance gains if more memory were available.\n"
)

# google-research/t5x#870 (2022-10-25): JAX's allocator is the one that TensorFlow has
REAL_JAX_ALLOCATOR = (
    "2022-10-25 21:52:08.219469: W external/org_tensorflow/tensorflow/tsl/framework/bfc_allocator.cc:479] Allocator "
    "(GPU_1_bfc) ran out of memory trying to allocate 27.93GiB (rounded to 29995136256)requested by op \n"
    "2022-10-25 21:52:08.220328: W external/org_tensorflow/tensorflow/tsl/framework/bfc_allocator.cc:491] ****\n"
)

# murong-xu/CADS#4
REAL_TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB "
    "of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the "
    "allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated."
)
# wxian3/NeuroLens#2 (the misprint is torch's)
REAL_TORCH_TOO_LARGE = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 55.57 GiB. GPU 0 has a total capacty of "
    "12.00 GiB of which 9.02 GiB is free. Of the allocated memory 984.52 MiB is allocated by PyTorch, and 463.48 MiB "
    "is reserved by PyTorch but unallocated."
)


def test_a_real_dump_of_tensorflow() -> None:
    found = out_of_memory.read(REAL_TENSORFLOW)
    assert (found.framework, found.asked_bytes) == ("tensorflow", 2048 * 436631 * 4)
    assert (found.limit_bytes, found.used_bytes) == (10925244416, 7613320960)
    assert [(each.count, each.bytes) for each in found.filled] == [
        (2, 2 * 3576881152), (1, 3576881152), (2, 2 * 134217728), (10, 10 * 16777216),
    ]  # fmt: skip
    assert next(each.text for each in advise(found)).startswith("a batch of at most 87 %")


def test_real_lists_of_xla() -> None:
    found = out_of_memory.read(REAL_XLA)
    assert (found.framework, found.asked_bytes) == ("xla", 10228218416)
    assert found.parts == {
        "arguments": round(2.86 * GIB), "outputs": round(462.23 * MIB), "temporaries": round(9.53 * GIB),
        "constants": round(38.7 * 1024),
    }  # fmt: skip
    assert [(each.dtype, each.shape, each.bytes) for each in found.filled] == [
        ("f32", "[5120,1286,64]", round(1.57 * GIB))
    ]
    in_a_log = out_of_memory.read(REAL_XLA_IN_A_LOG)
    assert in_a_log.parts == {
        "arguments": round(7.78 * GIB), "outputs": round(301.25 * MIB), "temporaries": round(3.83 * GIB),
    }  # fmt: skip
    assert [(each.name, each.shape) for each in in_a_log.filled] == [("convert", "[250880,4096]")]


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_list_of_xla_that_lost_its_first_lines(lost: int) -> None:
    message, *rest = REAL_XLA.splitlines(keepends=True)
    found = out_of_memory.read(message + "".join(rest[lost:]))
    assert (found.asked_bytes, len(found.filled)) == (10228218416, 1)
    assert out_of_memory.read("Peak buffers:\n") is None


def test_a_list_of_xla_after_another_message() -> None:
    found = out_of_memory.read(REAL_XLA_ON_ROCM)
    assert (found.framework, found.asked_bytes) == ("xla", round(154.06 * GIB))
    with_units = out_of_memory.read(REAL_XLA.replace("10228218416 bytes", "9.53GiB"))
    assert with_units.asked_bytes == round(9.53 * GIB)


def test_real_lists_of_a_tpu() -> None:
    found = out_of_memory.read(REAL_TPU)
    assert (found.framework, found.limit_bytes) == ("xla", round(15.48 * GIB))
    assert found.asked_bytes == round(30.21 * GIB) - round(15.9 * GIB)
    assert found.parts == {"arguments": round(15.9 * GIB), "outputs": 1024, "temporaries": round(14.31 * GIB)}
    assert [(one.dtype, one.shape, one.bytes) for one in found.filled] == [
        ("bf16", "[256000,3072]", round(1.46 * GIB))
    ]
    assert [(one.cause, "at most 29 instead of 64" in one.text) for one in advise(found, 64)] == [
        ("batch", True)
    ]
    early = out_of_memory.read(REAL_TPU_OF_TENSORFLOW)
    assert (early.asked_bytes, early.parts) == (round(41.74 * GIB), {"temporaries": round(41.19 * GIB)})
    assert [(one.name, one.bytes) for one in early.filled] == [("slicewise_79/cic_update/FloorMod", 32 * GIB)]
    in_a_log = out_of_memory.read(REAL_TPU_IN_A_LOG)
    assert [(one.name, one.shape) for one in in_a_log.filled] == [("fusion.44044.remat4", "[12582912,1]")]


def test_a_buffer_that_no_tpu_could_hold() -> None:
    """As openxla/xla has it in docs/oom_debugging.md."""
    said = (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Allocation (size=107374182400) would exceed memory "
        "(size=17179869184) :: #allocation7 [shape = 'u8[327680,327680]{1,0:T(8,128)(4,1)}', space=hbm]"
    )
    found = out_of_memory.read(said)
    assert (found.framework, found.asked_bytes, found.limit_bytes) == ("xla", 100 * GIB, 16 * GIB)


def test_the_drivers_own_allocator() -> None:
    found = out_of_memory.read(REAL_ASYNC)
    assert (found.device, found.asked_bytes, found.used_bytes) == ("gpu_async_1", 1225195446464, 61982909300)
    assert (found.limit_bytes, found.free_bytes, found.loose_bytes) == (85095874560, 22635544576, None)
    small = out_of_memory.read(REAL_ASYNC.replace("1225195446464", "12251954464"))
    assert small is not None
    assert [(one.cause, one.snippet) for one in advise(small)] == [("fragmentation", "")]


def test_what_the_caller_can_do_without_is_no_error() -> None:
    assert out_of_memory.read(NO_FAILURE) is None
    found = out_of_memory.read(BFC + KERAS + NO_FAILURE)
    assert found.asked_bytes == 1610612736


@pytest.mark.parametrize(
    "text",
    [
        REAL_JAX_ALLOCATOR,
        REAL_JAX_ALLOCATOR.replace("org_tensorflow/tensorflow", "xla/xla"),
        REAL_JAX_ALLOCATOR.replace("external/org_tensorflow/", "")
        + "jaxlib.xla_extension.XlaRuntimeError: no room",
    ],
    ids=["as printed", "of a newer jaxlib", "told by the error alone"],
)
def test_jaxs_allocator_is_not_tensorflows(text: str) -> None:
    found = out_of_memory.read(text)
    assert (found.framework, found.asked_bytes, found.device) == ("xla", 29995136256, "GPU_1_bfc")
    of_tensorflow = out_of_memory.read(REAL_JAX_ALLOCATOR.replace("external/org_", "external/local_"))
    assert of_tensorflow.framework == "tensorflow"


def test_real_messages_of_torch() -> None:
    found = out_of_memory.read(REAL_TORCH)
    assert (found.asked_bytes, found.limit_bytes) == (round(22.78 * GIB), round(31.47 * GIB))
    assert (found.used_bytes, found.loose_bytes) == (round(9.08 * GIB), round(9.35 * GIB))
    assert found.others_bytes is None  # the printed figures are 0.01 GiB apart, as rounding leaves them
    assert [each.cause for each in advise(found)] == ["batch"]
    large = out_of_memory.read(REAL_TORCH_TOO_LARGE)
    assert (large.limit_bytes, large.used_bytes, large.others_bytes) == (12 * GIB, round(984.52 * MIB), None)
    assert [each.cause for each in advise(large)] == ["too large"]


NEARLY = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.56 GiB already "
    "allocated; 12.44 MiB free; 9.80 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("reserved", "causes"), [("9.80 GiB", ["fragmentation", "batch"]), ("9.56 GiB", ["batch"])]
)
def test_a_small_tensor_that_just_did_not_fit_leaves_something_to_try(
    reserved: str, causes: list[str]
) -> None:
    """What was needed is below the part of the memory that a batch should fill, so no bound follows."""
    found = out_of_memory.read(NEARLY.replace("9.80 GiB", reserved))
    assert found is not None
    advice = advise(found)
    assert [each.cause for each in advice] == causes
    assert "9.58 GiB of 10.8 GiB were in use and asked for" in advice[-1].text


def test_a_tensor_larger_than_the_card_needs_another_shape() -> None:
    found = out_of_memory.read(TORCH.replace("allocate 2.00 GiB", "allocate 55.57 GiB"))
    assert found is not None
    assert next(each.cause for each in advise(found)) == "too large"


@pytest.mark.parametrize("text", ["", "Epoch 1/10", "MemoryError", "CUDA out of memory. Tried to allocate",
                                  "RESOURCE_EXHAUSTED: Out of memory allocating bytes"])  # fmt: skip
def test_other_texts_are_none(text: str) -> None:
    assert out_of_memory.read(text) is None


def failed(*, limit: int, used: int, asked: int) -> Run:
    """A convolutional network at batch 64 in float32 that did not fit; its layers take 791 MiB."""
    run = mpprof_api.load(SAMPLES / "v100-convnet-float32")
    assert run.facts is not None
    error = (
        f"Allocator (GPU_0_bfc) ran out of memory trying to allocate 1MiB (rounded to {asked})\n"
        f"Limit: {limit}\nInUse: {used}\n"
    )
    return replace(run, facts=replace(run.facts, ended=Ended("out_of_memory", error)))


def batch_advice(run: Run) -> list[tuple[str, str]]:
    found = failure(run)
    return [(one.cause, one.text) for one in found.advice if one.cause in ("batch", "elsewhere")]


def test_the_models_estimate_is_the_figure_within_what_the_error_allows() -> None:
    assert batch_advice(failed(limit=800 * MIB, used=640 * MIB, asked=150 * MIB)) == [
        ("batch", "a batch of 57 in float32 or 115 in mixed_float16 instead of 64, estimated from the model's layers; "
                  "at most 58 by what was in use and asked for"),
    ]  # fmt: skip


def test_an_estimate_that_the_error_refutes_gives_no_batch() -> None:
    """More was needed than the layers account for: the batch is the error's, and the rest is said."""
    (batch, text), (cause, rest) = batch_advice(failed(limit=8 * GIB, used=7 * GIB, asked=2 * GIB))
    assert (batch, cause) == ("batch", "elsewhere")
    assert text.startswith(
        "a batch of at most 51 instead of 64, by what was in use and asked for; in fact less"
    )
    assert rest.startswith("see what holds the rest (another model, ")
    assert rest.endswith(
        ": at batch 64 in float32 the model's layers, weights and slots take 791 MiB (estimated) "
        "of 9.00 GiB in use and asked for"
    )


@pytest.mark.parametrize(
    ("framework", "said"),
    [
        ({"keras": "3.15.1", "backend": "tensorflow"}, 'keras.config.set_dtype_policy("mixed_float16")'),
        ({"keras": "2.15.0", "backend": "tensorflow"}, "keras.mixed_precision.set_global_policy("),
        ({"backend": "jax", "loop": "custom"}, "matrix products in float16"),  # the V100 has no bfloat16
        ({"backend": "torch", "loop": "custom"}, 'torch.autocast("cuda", dtype=torch.float16)'),
    ],
)
def test_16_bits_are_advised_in_the_frameworks_own_way(framework: dict[str, str], said: str) -> None:
    run = failed(limit=8 * GIB, used=7 * GIB, asked=2 * GIB)
    assert run.facts is not None
    found = failure(replace(run, facts=replace(run.facts, framework=framework)))
    (advice,) = [one for one in found.advice if one.cause == "precision"]
    assert advice.text.startswith("it trains in float32: 16 bits halve activations: ")
    assert said in advice.text + advice.snippet


@pytest.mark.parametrize(
    ("text", "listed", "said"),
    [
        (BFC + KERAS, 4 * GIB, 'keras.config.set_dtype_policy("mixed_float16")'),
        (XLA, 9 * GIB, "matrix products in bfloat16, weights kept in float32"),
        (TORCH, None, None),  # which says nothing of types
    ],
    ids=["tensorflow", "xla", "torch"],
)
def test_a_text_alone_gives_the_lists_sum_and_its_frameworks_way(
    text: str, listed: int | None, said: str | None
) -> None:
    found = out_of_memory.read(text)
    assert found.listed_bytes == listed
    precision = [one.text for one in advise(found) if one.cause == "precision"]
    assert len(precision) == (said is not None)
    assert said is None or said in precision[0]


def test_the_command_reads_a_text(mpprof: Mpprof, tmp_path: Path) -> None:  # noqa: F811
    log = tmp_path / "train.log"
    log.write_text("Epoch 1/10\n" + BFC + KERAS)
    done = mpprof("memory", log)
    assert done.code == 0
    assert done.out.startswith("1.50 GiB did not fit on GPU_0_bfc, asked for by model/conv2d_3/Conv2D\n")
    assert 'set_dtype_policy("mixed_float16")' in done.out
    assert "The largest that it lists, of 4.00 GiB in all\n" in done.out
    assert json.loads(mpprof("memory", log, "--format", "json").out)["asked_bytes"] == 1610612736
    log.write_text("Epoch 1/10")
    assert mpprof("memory", log).code == 2


def test_a_log_that_powershell_wrote_is_read(mpprof: Mpprof, tmp_path: Path) -> None:  # noqa: F811
    log = tmp_path / "train.log"
    log.write_bytes(("Epoch 1/10\r\n" + TORCH).encode("utf-16"))
    assert mpprof("memory", log).out.startswith("2.00 GiB did not fit on GPU 1\n")


def test_a_message_without_figures_says_what_would_tell_more(mpprof: Mpprof, tmp_path: Path) -> None:  # noqa: F811
    log = tmp_path / "train.log"
    log.write_text("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.")
    done = mpprof("memory", log)
    assert done.out.startswith("16.0 GiB did not fit\n")
    assert "states neither a limit nor what was in use. --card NAME" in done.out
    done = mpprof("memory", log, "--card", "a100")
    assert "does not state what was in use. The log directory" in done.out
    assert "--card" not in done.out
    log.write_text(REAL_TORCH_WITHOUT_SIZES)
    done = mpprof("memory", log)
    assert done.code == 0
    assert done.out.startswith('"CUDA error: out of memory": how much did not fit is not stated\n')
    assert "CUDA_LAUNCH_BLOCKING=1" in done.out
    assert "What filled the memory is not stated. The log directory of a run" in done.out
    made = json.loads(mpprof("memory", log, "--format", "json").out)
    assert (made["asked_bytes"], made["words"]) == (None, "CUDA error: out of memory")


# taohan10200/IIM#28
REAL_TORCH_WITHOUT_SIZES = """RuntimeError: CUDA error: out of memory
CUDA kernel errors might be asynchronously reported at some other API call,so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1.
"""
# horovod/horovod#1350: the first of them
REAL_REFUSALS = """\
[1,1]<stderr>:2019-08-26 18:41:15.943905: E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 2.96G \
(3173555200 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory
[1,1]<stderr>:2019-08-26 18:41:15.944791: E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 2.66G \
(2856199680 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory
[1,1]<stderr>:2019-08-26 18:41:15.945631: E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 2.39G \
(2570579712 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory
"""
# google-deepmind/alphafold#197
REAL_REFUSALS_OF_JAX = """\
2021-10-15 15:01:44.577626: E external/org_tensorflow/tensorflow/stream_executor/cuda/cuda_driver.cc:764] failed to alloc \
2740606464 bytes unified memory; result: CUDA_ERROR_OUT_OF_MEMORY: out of memory
2021-10-15 15:01:46.086485: E external/org_tensorflow/tensorflow/stream_executor/cuda/cuda_driver.cc:764] failed to alloc \
2466545664 bytes unified memory; result: CUDA_ERROR_OUT_OF_MEMORY: out of memory
"""
# as tensorflow/tensorflow#25337 has it, with a number of our own
DEVICE = (
    "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1115] Created TensorFlow device "
    "(/job:localhost/replica:0/task:0/device:GPU:0 with 3100 MB memory) -> physical GPU "
    "(device: 0, name: GeForce RTX 2070, pci bus id: 0000:01:00.0, compute capability: 7.5)\n"
)


def test_what_the_driver_refused_is_no_tensor() -> None:
    """TensorFlow's allocator asks for less and less: the first is what it wanted, below the last was free."""
    found = out_of_memory.read(DEVICE + REAL_REFUSALS)
    assert (found.framework, found.asked_bytes, found.refused_bytes) == ("tensorflow", 3173555200, 2570579712)
    assert (found.limit_bytes, found.device, found.used_bytes) == (3100 * MIB, "GeForce RTX 2070", None)
    advice = advise(found, 64)
    assert [(one.cause, one.snippet) for one in advice] == [
        ("driver", "nvidia-smi"), ("in advance", "TF_FORCE_GPU_ALLOW_GROWTH=true python train.py"),
    ]  # fmt: skip
    assert "refused 2.39 GiB, so less of the card was free" in advice[0].text
    later = (
        REAL_REFUSALS + REAL_REFUSALS.splitlines(keepends=True)[0]
    )  # asked for again, once memory was freed
    last = out_of_memory.read(later)
    assert (last.asked_bytes, last.refused_bytes, last.limit_bytes) == (3173555200, 3173555200, None)
    assert [one.cause for one in advise(last, 64)] == ["driver"]
    whole = out_of_memory.read(REAL_REFUSALS + REAL_TENSORFLOW)
    assert (whole.refused_bytes, whole.used_bytes) == (None, 7613320960)  # the dump says more


def test_refusals_of_jax_and_of_pinned_memory() -> None:
    found = out_of_memory.read(REAL_REFUSALS_OF_JAX)
    assert (found.framework, found.asked_bytes, found.refused_bytes) == ("xla", 2740606464, 2466545664)
    pinned = "cuda_driver.cc:893] failed to alloc 8589934592 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    host = out_of_memory.read(DEVICE + REAL_REFUSALS + pinned)
    assert (host.asked_bytes, host.refused_bytes, host.limit_bytes) == (8 * GIB, 8 * GIB, None)
    assert host.device == out_of_memory.PINNED
    assert [one.cause for one in advise(host)] == ["host memory"]


@pytest.mark.parametrize(
    ("said", "words", "framework"),
    [
        (REAL_TORCH_WITHOUT_SIZES, "CUDA error: out of memory", "torch"),
        ("RuntimeError: CUDA driver error: out of memory", "CUDA driver error: out of memory", "torch"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", None, "torch"),
        # tensorflow/tensorflow#39989
        (
            "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_ALLOC_FAILED",
            "tensorflow",
        ),
        # jax-ml/jax#4994
        (
            "RuntimeError: Internal: Failed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
            "jaxlib.xla_extension.XlaRuntimeError: INTERNAL",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "xla",
        ),
    ],
)
def test_errors_of_the_driver_that_state_no_size(said: str, words: str | None, framework: str) -> None:
    found = out_of_memory.read(said)
    assert (found.framework, found.asked_bytes, found.refused_bytes) == (framework, None, None)
    assert found.words == (words or "cuDNN error: CUDNN_STATUS_ALLOC_FAILED")
    advice = advise(found, 64, memory_bytes=16 * GIB)
    assert advice[0].cause == "driver"
    assert not any(one.cause in ("batch", "too large", "fragmentation") for one in advice)


def test_of_a_run_that_ended_so_the_models_layers_still_tell_a_batch() -> None:
    run = mpprof_api.load(SAMPLES / "v100-convnet-float32")
    small = replace(run.facts.devices[0], memory_bytes=700 * MIB)
    ended = Ended("out_of_memory", f"RuntimeError: {REAL_TORCH_WITHOUT_SIZES}")
    found = failure(replace(run, facts=replace(run.facts, ended=ended, devices=(small,))))
    assert found.asked_bytes is None
    assert [one.text for one in found.advice if one.cause == "batch"] == [
        "a batch of 50 in float32 or 100 in mixed_float16 instead of 64, estimated from the model's layers"
    ]


def test_the_report_of_a_run_that_ended_so_says_it_on_its_first_screen() -> None:
    error = (
        "OOM when allocating tensor with shape[64,256,512,512] and type float on GPU:0 by allocator GPU_0_bfc"
    )
    run = mpprof_api.load(SAMPLES / "v100-convnet-float32")
    assert run.facts is not None
    ended = Ended("out_of_memory", f"ResourceExhaustedError: {error} [Op:Conv2D]")
    document = documents.document(mpprof_api.diagnose(replace(run, facts=replace(run.facts, ended=ended))))
    assert "! training ran out of memory: 16.0 GiB did not fit for Conv2D;" in brief.render(document)
    assert document["absent"]["out_of_memory.limit_bytes"] == "the error's text does not state it"
    assert "ran out of memory" not in brief.render(documents.document(mpprof_api.diagnose(run)))
