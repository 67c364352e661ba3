"""Remedies of MP7: several devices and hosts."""

from __future__ import annotations

from mpprof.diagnosis.remedies import conditions as its
from mpprof.diagnosis.remedies.frameworks import ANY, JAX, KERAS_3, ON_JAX, ON_TENSORFLOW, TENSORFLOW, TORCH
from mpprof.diagnosis.remedies.shared_rows import ANY_VENDOR, NVIDIA, Row

DEVICES = (
    Row(
        "MP701", ANY, "a larger batch on each device: the same bytes are exchanged for more examples",
        larger_batch=True,
    ),
    Row(
        "MP701", KERAS_3, "exchange gradients once for several steps: gradient_accumulation_steps in the optimizer",
        "optimizer = keras.optimizers.Adam(gradient_accumulation_steps=4)",
    ),
    Row(
        "MP701", TORCH, "exchange in bfloat16: DDP's bf16_compress_hook",
        "model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook)",
        loop=True,
    ),
    Row(
        "MP701", JAX, "cast the gradients to bfloat16 before they are summed over the devices",
        "grads = jax.tree.map(lambda g: g.astype(jnp.bfloat16), grads)", loop=True,
    ),
    Row(
        "MP701", TENSORFLOW, "cast the gradients to 16 bits before they are summed over the replicas",
        "gradients = [tf.cast(gradient, tf.bfloat16) for gradient in gradients]", loop=True,
    ),
    Row(
        "MP702", ON_TENSORFLOW, "give each GPU its own launch threads: TF_GPU_THREAD_MODE=gpu_private",
        "TF_GPU_THREAD_MODE=gpu_private python train.py", loop=True,
    ),
    Row(
        "MP702", ANY, "a larger batch on each device, so that kernels take longer than their launches",
        larger_batch=True,
    ),
    Row(
        "MP703", ON_TENSORFLOW, "make the gradients of small tables dense before they are exchanged",
        "gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]", loop=True,
    ),
    Row("MP703", ANY, "a smaller table: fewer rows, or hashed ones"),
    Row(
        "MP704", ANY, "compare the slow device with the others: its clock and temperature, other jobs on that machine",
        "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE", vendors=NVIDIA,
    ),
    Row(
        "MP704", ANY, "compare the slow device with the others: its clock and temperature, other jobs on that machine",
        vendors=ANY_VENDOR - NVIDIA,
    ),
    Row("MP704", ANY, "give every device the same share of the batch"),
    Row(
        "MP704", ANY, "find what holds up its process: storage, too few CPU cores, or another process there",
        case="waits",
    ),
    Row(
        "MP705", ANY, "compare the traces of all devices, put into one folder: they show which one the others wait for",
        case="of one",
    ),
    Row(
        "MP705", TORCH, "overlap the exchange with the backward pass: larger buckets in DistributedDataParallel",
        "model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
        unless=(its.exchanges_one_by_one, its.exchanges_in_few, its.forward_alone), loop=True,
    ),
    Row(
        "MP705", TORCH,
        "begin the exchange earlier in the backward pass: smaller buckets in DistributedDataParallel",
        "model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=5, gradient_as_bucket_view=True)",
        when=(its.exchanges_in_few,), unless=(its.exchanges_one_by_one, its.forward_alone), loop=True,
    ),
    Row(
        "MP705", TORCH,
        "exchange many gradients at once, while the backward pass runs: DistributedDataParallel does, in buckets",
        "model = torch.nn.parallel.DistributedDataParallel(model)", when=(its.exchanges_one_by_one,),
        unless=(its.forward_alone,), loop=True,
    ),
    Row(
        "MP705", TORCH, "exchange once for several steps: accumulate under no_sync()",
        "with model.no_sync():\n    loss.backward()",
        unless=(its.exchanges_one_by_one, its.forward_alone), loop=True,
    ),
    Row(
        "MP705", KERAS_3, "exchange gradients once for several steps: gradient_accumulation_steps in the optimizer",
        "optimizer = keras.optimizers.Adam(gradient_accumulation_steps=4)", unless=(its.forward_alone,),
    ),
    Row(
        "MP705", ON_JAX, "let XLA's scheduler overlap the exchange: --xla_gpu_enable_latency_hiding_scheduler=true",
        "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true python train.py", loop=True,
    ),
    Row(
        "MP705", ANY, "a larger batch on each device: more work for the same bytes", larger_batch=True,
    ),
    Row(
        "MP705", ANY,
        "divide the batch into parts: one part computes while the other's activations travel",
        case="within a pass",
    ),
    Row(
        "MP705", ANY, "exchange activations among fewer devices, or among those with the fastest links",
        case="within a pass",
    ),
)  # fmt: skip
