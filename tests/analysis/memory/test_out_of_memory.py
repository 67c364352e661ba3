"""Out-of-memory errors of three frameworks, shortened: first formats as in tensorflow/tensorflow#47820 and #3304,
jax-ml/jax#13428 and pytorch/pytorch#16417 with numbers of our own, then what machines printed, each with its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpprof.analysis.memory import out_of_memory
from tests.cli.conftest import Mpprof, mpprof  # noqa: F401

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
    assert found is not None
    assert (found.framework, found.device, found.op) == ("tensorflow", "GPU_0_bfc", "model/conv2d_3/Conv2D")
    assert (found.asked_bytes, found.limit_bytes, found.used_bytes) == (1610612736, 4831838208, 4295010304)
    assert found.loose_bytes == 4831838208 - 4295010304
    largest = found.filled[:3]
    assert [(each.count, each.bytes) for each in largest] == [(12, 3 * GIB), (1, 1536 * MIB), (2, GIB)]
    assert (largest[1].dtype, largest[1].shape) == ("float", "[64,96,256,256]")
    advice = out_of_memory.advise(found)
    assert [each.cause for each in advice] == ["batch", "precision"]
    assert [each.cause for each in out_of_memory.advise(found, policy="mixed_float16")] == ["batch"]
    assert "at most 73 %" in advice[0].text


def test_tensorflows_error_alone() -> None:
    found = out_of_memory.read(KERAS)
    assert found is not None
    assert (found.asked_bytes, found.limit_bytes) == (64 * 96 * 256 * 256 * 4, None)


def test_xlas_list_of_buffers() -> None:
    found = out_of_memory.read(XLA)
    assert found is not None
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
    assert found is not None
    assert (found.framework, found.asked_bytes, found.limit_bytes, found.filled) == ("xla", asked, None, ())
    assert out_of_memory.advise(found, 32) == ()


def test_pytorchs_message_in_both_wordings() -> None:
    found = out_of_memory.read(TORCH)
    assert found is not None
    assert (found.asked_bytes, found.limit_bytes, found.used_bytes) == (2 * GIB, 24 * GIB, 12 * GIB)
    assert (found.loose_bytes, found.others_bytes, found.device) == (7 * GIB, 4 * GIB, "GPU 1")
    assert [each.cause for each in out_of_memory.advise(found)] == ["fragmentation", "other processes"]
    assert out_of_memory.read(TORCH.replace("CUDA", "HIP")) == found
    old = out_of_memory.read(OLD_TORCH)
    assert old is not None
    assert (old.limit_bytes, old.used_bytes) == (6 * GIB, round(781.5 * MIB))
    assert old.loose_bytes == 1280 * MIB - round(781.5 * MIB)


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
    assert found is not None
    assert (found.framework, found.asked_bytes) == ("tensorflow", 2048 * 436631 * 4)
    assert (found.limit_bytes, found.used_bytes) == (10925244416, 7613320960)
    assert [(each.count, each.bytes) for each in found.filled] == [
        (2, 2 * 3576881152), (1, 3576881152), (2, 2 * 134217728), (10, 10 * 16777216),
    ]  # fmt: skip
    assert next(each.text for each in out_of_memory.advise(found)).startswith("a batch of at most 87 %")


def test_real_lists_of_xla() -> None:
    found = out_of_memory.read(REAL_XLA)
    assert found is not None
    assert (found.framework, found.asked_bytes) == ("xla", 10228218416)
    assert found.parts == {
        "arguments": round(2.86 * GIB), "outputs": round(462.23 * MIB), "temporaries": round(9.53 * GIB),
        "constants": round(38.7 * 1024),
    }  # fmt: skip
    assert [(each.dtype, each.shape, each.bytes) for each in found.filled] == [
        ("f32", "[5120,1286,64]", round(1.57 * GIB))
    ]
    in_a_log = out_of_memory.read(REAL_XLA_IN_A_LOG)
    assert in_a_log is not None
    assert in_a_log.parts == {
        "arguments": round(7.78 * GIB), "outputs": round(301.25 * MIB), "temporaries": round(3.83 * GIB),
    }  # fmt: skip
    assert [(each.name, each.shape) for each in in_a_log.filled] == [("convert", "[250880,4096]")]


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
    assert found is not None
    assert (found.framework, found.asked_bytes, found.device) == ("xla", 29995136256, "GPU_1_bfc")
    of_tensorflow = out_of_memory.read(REAL_JAX_ALLOCATOR.replace("external/org_", "external/local_"))
    assert of_tensorflow is not None
    assert of_tensorflow.framework == "tensorflow"


def test_real_messages_of_torch() -> None:
    found = out_of_memory.read(REAL_TORCH)
    assert found is not None
    assert (found.asked_bytes, found.limit_bytes) == (round(22.78 * GIB), round(31.47 * GIB))
    assert (found.used_bytes, found.loose_bytes) == (round(9.08 * GIB), round(9.35 * GIB))
    assert found.others_bytes == pytest.approx(0.01 * GIB, abs=2)
    assert [each.cause for each in out_of_memory.advise(found)] == ["batch"]
    large = out_of_memory.read(REAL_TORCH_TOO_LARGE)
    assert large is not None
    assert (large.limit_bytes, large.used_bytes, large.others_bytes) == (12 * GIB, round(984.52 * MIB), None)
    assert [each.cause for each in out_of_memory.advise(large)] == ["too large"]


def test_a_tensor_larger_than_the_card_needs_another_shape() -> None:
    found = out_of_memory.read(TORCH.replace("allocate 2.00 GiB", "allocate 55.57 GiB"))
    assert found is not None
    assert next(each.cause for each in out_of_memory.advise(found)) == "too large"


@pytest.mark.parametrize("text", ["", "Epoch 1/10", "MemoryError", "CUDA out of memory. Tried to allocate",
                                  "RESOURCE_EXHAUSTED: Out of memory allocating bytes"])  # fmt: skip
def test_other_texts_are_none(text: str) -> None:
    assert out_of_memory.read(text) is None


def test_the_command_reads_a_text(mpprof: Mpprof, tmp_path: Path) -> None:  # noqa: F811
    log = tmp_path / "train.log"
    log.write_text("Epoch 1/10\n" + BFC + KERAS)
    done = mpprof("memory", log)
    assert done.code == 0
    assert done.out.startswith("1.50 GiB did not fit on GPU_0_bfc, asked for by model/conv2d_3/Conv2D\n")
    assert 'set_dtype_policy("mixed_float16")' in done.out
    assert json.loads(mpprof("memory", log, "--format", "json").out)["asked_bytes"] == 1610612736
    log.write_text("Epoch 1/10")
    assert mpprof("memory", log).code == 2
