"""Remedies of MP3: the host, the input, launches and copies."""

from __future__ import annotations

from mpprof.diagnosis.remedies import conditions as its
from mpprof.diagnosis.remedies.conditions import Condition
from mpprof.diagnosis.remedies.frameworks import (
    ANY,
    JAX,
    KERAS,
    KERAS_2,
    KERAS_3,
    ON_JAX,
    ON_TENSORFLOW,
    ON_TORCH,
    TENSORFLOW,
    TORCH,
    UNKNOWN,
    WITHOUT_KERAS,
)
from mpprof.diagnosis.remedies.shared_rows import (
    AMD,
    COMPILE,
    KERAS_ON_JAX,
    KERAS_ON_TORCH,
    NOT_NVIDIA,
    NVIDIA,
    Row,
    float32_for,
    fused,
    in_bfloat16,
)

_OF_ONE_BATCH = "dataset, batch_size=64"
_OF_ONE_SIZE = "batches of one size: drop the remainder, or pad to few lengths"
_Option = tuple[str, str, tuple[Condition, ...], tuple[Condition, ...]]
"""Text, code to copy, and the conditions under which it helps and does not."""

_TF_DATA: tuple[_Option, ...] = (
    (
        "parallelise the pipeline: data.map(decode, num_parallel_calls=tf.data.AUTOTUNE)",
        "data = data.map(decode, num_parallel_calls=tf.data.AUTOTUNE)", (), (its.maps_in_parallel, its.slices_memory),
    ),
    (
        ".cache() the data that fits in memory, before any random op", "data = data.cache()",
        (), (its.caches, its.slices_memory),
    ),
    (".prefetch(tf.data.AUTOTUNE) last", "data = data.prefetch(tf.data.AUTOTUNE)", (), (its.prefetches,)),
    (
        "the pipeline already prefetches: do less work for each example (decoded, smaller files), or use more CPU cores",
        "", (its.prefetches,), (),
    ),
)  # fmt: skip
_DATA_LOADER: tuple[_Option, ...] = (
    (
        "make batches in other processes: DataLoader(..., num_workers=8, persistent_workers=True)",
        f"data = DataLoader({_OF_ONE_BATCH}, num_workers=8, persistent_workers=True, pin_memory=True)",
        (), (its.loads_in_workers,),
    ),
    (
        "more num_workers, a larger prefetch_factor, and persistent_workers=True in the DataLoader",
        f"data = DataLoader({_OF_ONE_BATCH}, num_workers=16, prefetch_factor=4, persistent_workers=True)",
        (its.loads_in_workers,), (its.keeps_workers,),
    ),
    (
        "more num_workers and a larger prefetch_factor in the DataLoader",
        f"data = DataLoader({_OF_ONE_BATCH}, num_workers=16, prefetch_factor=4, persistent_workers=True)",
        (its.loads_in_workers, its.keeps_workers), (),
    ),
    ("pin_memory=True", f"data = DataLoader({_OF_ONE_BATCH}, pin_memory=True)", (), (its.pins_memory,)),
)  # fmt: skip
_PY_DATASET: tuple[_Option, ...] = (
    (
        "make batches in other processes, ahead of the step: a keras.utils.PyDataset with workers=8, "
        "use_multiprocessing=True, max_queue_size=16",
        "super().__init__(workers=8, use_multiprocessing=True, max_queue_size=16)", (), (its.loads_in_workers,),
    ),
    ("more workers and a larger max_queue_size of the PyDataset", "", (its.loads_in_workers,), ()),
)  # fmt: skip
_GENERATOR: tuple[_Option, ...] = (
    (
        "make batches in other processes, ahead of the step: a keras.utils.PyDataset in place of the generator, "
        "with workers=8, use_multiprocessing=True, max_queue_size=16",
        "super().__init__(workers=8, use_multiprocessing=True, max_queue_size=16)", (), (),
    ),
)  # fmt: skip
_GENERATOR_OF_KERAS_2: tuple[_Option, ...] = (
    (
        "make batches in other processes: a Sequence in place of the generator, and "
        "fit(..., workers=8, use_multiprocessing=True)",
        "model.fit(data, workers=8, use_multiprocessing=True)", (), (),
    ),
)  # fmt: skip
_ARRAYS: tuple[_Option, ...] = (
    (
        'fit(..., shuffle="batch"): a batch is then one slice of the arrays, and not gathered row by row',
        'model.fit(x, y, shuffle="batch")', (), (),
    ),
)  # fmt: skip
_SEQUENCE: tuple[_Option, ...] = (
    (
        "make batches in other processes: fit(..., workers=8, use_multiprocessing=True)",
        "model.fit(data, workers=8, use_multiprocessing=True)", (), (),
    ),
)  # fmt: skip
_GRAIN: tuple[_Option, ...] = (
    (
        "make batches in other processes, ahead of the step: grain.DataLoader(..., worker_count=8)",
        "data = grain.DataLoader(data_source=source, sampler=sampler, worker_count=8)", (), (),
    ),
)  # fmt: skip
_ELSEWHERE = (its.from_arrays, its.from_generator)
"""What only Keras feeds a training from."""
_NOT_TF_DATA = (its.from_data_loader, its.from_py_dataset, *_ELSEWHERE)
_FED = (
    (ON_TENSORFLOW & KERAS, (), _NOT_TF_DATA, _TF_DATA),
    (TENSORFLOW, (), (its.from_data_loader, its.from_py_dataset), _TF_DATA),
    (ANY - ON_TENSORFLOW, (its.from_tf_data,), (), _TF_DATA),
    (KERAS_ON_TORCH, (), (its.from_tf_data, its.from_py_dataset, *_ELSEWHERE), _DATA_LOADER),
    (TORCH, (), (its.from_tf_data, its.from_py_dataset), _DATA_LOADER),
    (ANY - ON_TORCH, (its.from_data_loader,), (), _DATA_LOADER),
    (KERAS_ON_JAX, (), (its.from_tf_data, its.from_data_loader, *_ELSEWHERE), _PY_DATASET),
    (ANY - KERAS_ON_JAX - KERAS_2, (its.from_py_dataset,), (), _PY_DATASET),
    (KERAS_2, (its.from_py_dataset,), (), _SEQUENCE),
    (KERAS_3, (its.from_generator,), (), _GENERATOR),
    (KERAS_2, (its.from_generator,), (), _GENERATOR_OF_KERAS_2),
    (KERAS, (its.from_arrays,), (), _ARRAYS),
    (JAX, (), (its.from_tf_data, its.from_data_loader), _GRAIN),
)
"""What usually feeds a training of each framework, and what is known to feed this one."""

INPUT = (
    *(
        Row("MP301", on, text, snippet, when=(*known, *when), unless=(*other, *unless), loop=True)
        for on, known, other, options in _FED
        for text, snippet, when, unless in options
    ),
    Row("MP301", UNKNOWN, "make batches in parallel with the step and ahead of it", loop=True),
    Row(
        "MP301", ANY, "a smaller shuffle buffer: it is filled anew for each epoch; or repeat() the data, with steps_per_epoch",
        "data = data.shuffle(1_000).repeat()", case="first", when=(its.from_tf_data,),
    ),
    Row(
        "MP301", ANY, "keep the workers from one epoch to the next: DataLoader(..., persistent_workers=True)",
        "data = DataLoader(dataset, batch_size=64, num_workers=8, persistent_workers=True)", case="first",
        when=(its.from_data_loader,), unless=(its.keeps_workers,),
    ),
    Row(
        "MP301", ANY, "keep from one epoch to the next what the data makes anew for each: indices, buffers, workers",
        case="first", unless=(its.from_tf_data,),
    ),
    Row(
        "MP301", ON_JAX | UNKNOWN, "store examples decoded and smaller",
        unless=(its.from_arrays, its.slices_memory), loop=True,
    ),
    Row(
        "MP310", ANY, "send uint8 instead of float32 and scale on the device", case="from outside",
        unless=(its.only_infers, its.sends_integers),
    ),
    Row(
        "MP310", ANY, "keep the copied data (weights) on the device, or send it in 16 bits, which halves the bytes", case="from outside", when=(its.only_infers,),
    ),
    Row(
        "MP310", ON_TENSORFLOW, "prefetch batches to the device",
        'data = data.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))', "from outside",
        unless=(its.prefetches_to_device, its.from_data_loader, its.from_py_dataset, *_ELSEWHERE), loop=True,
    ),
    Row(
        "MP310", TORCH, "pin_memory=True in the DataLoader, and .to(device, non_blocking=True)",
        "x = x.to(device, non_blocking=True)", "from outside", unless=(its.pins_memory, its.only_infers), loop=True,
    ),
    Row(
        "MP310", KERAS_ON_TORCH, "pin_memory=True in the DataLoader",
        f"data = DataLoader({_OF_ONE_BATCH}, pin_memory=True)", "from outside",
        unless=(its.pins_memory, its.from_tf_data, its.from_py_dataset, *_ELSEWHERE), loop=True,
    ),
    Row(
        "MP310", JAX, "jax.device_put the next batch while the step runs",
        "batch = jax.device_put(next(batches))", "from outside", loop=True,
    ),
    Row(
        "MP310", ANY, "send fewer bytes a step, or send them while the step before runs", case="from outside",
        when=(its.sends_integers,), unless=(its.only_infers,),
    ),
    Row("MP310", UNKNOWN, "copy from pinned memory while the previous step runs", case="from outside", loop=True),
    Row(
        "MP310", ANY,
        "an op whose tensor goes to the host and back runs on the CPU: use one that has a kernel for this type on "
        "the GPU, or put its layer into float32",
        "mpprof ops {run}", "there and back",
    ),
    Row(
        "MP310", ANY,
        "offload less: keep in the host's memory only what does not fit on the device",
        "mpprof ops {run}", "offloaded",
    ),
    Row(
        "MP310", JAX, "compute activations again in the backward pass instead of fetching them from the host",
        "block = jax.checkpoint(block)", "offloaded", unless=(its.forward_alone, its.only_infers), loop=True,
    ),
    Row(
        "MP310", TORCH, "compute activations again in the backward pass instead of fetching them from the host",
        "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)", "offloaded",
        unless=(its.forward_alone, its.only_infers), loop=True,
    ),
    Row(
        "MP310", ANY, "read values from the device once in many steps: each such copy waits for all work before it",
        "mpprof ops {run}", "blocking",
    ),
    Row(
        "MP310", TORCH, "copy without waiting: .to(device, non_blocking=True), from and to pinned memory",
        "x = x.to(device, non_blocking=True)", "blocking", loop=True,
    ),
    Row(
        "MP310", ANY,
        "these copies stay within the device: find the ops that issue them (mpprof ops RUN) and build their "
        "results in place",
        "mpprof ops {run}", "within",
    ),
    *fused("MP310", "may fuse them away", "within"),
    *(
        Row(
            "MP312", TORCH, "keep the allocator's cache (no torch.cuda.empty_cache() in the loop), and let it grow",
            f"PYTORCH_{api}_ALLOC_CONF=expandable_segments:True python train.py", vendors=vendors, loop=True,
        )
        for api, vendors in (("CUDA", NVIDIA), ("HIP", AMD))
    ),
    Row(
        "MP312", ON_TENSORFLOW, _OF_ONE_SIZE, "data = data.batch(batch_size, drop_remainder=True)", unless=_NOT_TF_DATA,
    ),
    *(Row("MP312", ON_TENSORFLOW, _OF_ONE_SIZE, when=(other,)) for other in _NOT_TF_DATA),
    Row(
        "MP312", TORCH, _OF_ONE_SIZE, "loader = torch.utils.data.DataLoader(dataset, batch_size, drop_last=True)",
    ),
    Row("MP312", ANY - ON_TENSORFLOW - TORCH, _OF_ONE_SIZE),
)  # fmt: skip

LAUNCHES = (
    *fused("MP302", "(fuses kernels)"),
    Row(
        "MP302", TORCH, 'torch.compile(model, mode="reduce-overhead") replays CUDA graphs',
        'model = torch.compile(model, mode="reduce-overhead")', vendors=NVIDIA, unless=(its.replays_graphs,),
        loop=True,
    ),
    Row(
        "MP302", TORCH, 'torch.compile(model, mode="reduce-overhead") replays graphs of launches',
        'model = torch.compile(model, mode="reduce-overhead")', vendors=NOT_NVIDIA, unless=(its.replays_graphs,),
        loop=True,
    ),
    Row("MP302", ANY, "a larger batch", larger_batch=True),
    Row(
        "MP302", KERAS - ON_TORCH, "steps_per_execution=16",
        "model.compile(optimizer=model.optimizer, loss=model.loss, steps_per_execution=16)",
        unless=(its.several_steps_a_call,), loop=True,
    ),
    Row(
        "MP302", ON_TENSORFLOW, "TF_GPU_THREAD_MODE=gpu_private where the input pipeline competes for threads",
        "TF_GPU_THREAD_MODE=gpu_private python train.py", loop=True,
    ),
    Row(
        "MP311", KERAS - ON_TORCH, "steps_per_execution=16: one wait for the device in 16 steps",
        "model.compile(optimizer=model.optimizer, loss=model.loss, steps_per_execution=16)",
        unless=(its.several_steps_a_call,), loop=True,
    ),
    Row(
        "MP311", ANY - KERAS, "do not wait for the device in every step: read the loss every hundred steps",
        unless=(its.only_infers, its.forward_alone), loop=True,
    ),
    Row(
        "MP311", ANY - KERAS, "do not wait for the device in every step: read a step's results while the next one runs",
        when=(its.only_infers,), loop=True,
    ),
    Row(
        "MP311", TORCH,
        "read no value in mid-step (.item(), .cpu(), a tensor in an if): keep it on the device, and read it at the "
        "step's end or every hundred steps",
        "losses.append(loss.detach())  # and torch.stack(losses).mean().item() every hundred steps",
        "mid-step", unless=(its.forward_alone,),
    ),
    Row(
        "MP311", TORCH,
        "read no value where more is to be launched (.item(), .cpu(), a tensor in an if): keep it on the device, or "
        "copy it without waiting and read it later",
        'value = value.to("cpu", non_blocking=True)  # read after the launches that follow', "mid-step",
        when=(its.forward_alone,),
    ),
    Row(
        "MP311", ANY - TORCH, "find the op that makes the host wait in mid-step, and take it out of the step",
        "mpprof ops {run}", "mid-step",
    ),
    Row("MP311", ANY, "a larger batch", larger_batch=True),
    Row(
        "MP303", ANY, "try twice the batch (and its learning rate), and compare examples per second",
        "mpprof compare {run} RUN_WITH_TWICE_THE_BATCH", unless=(its.only_infers,),
    ),
    Row(
        "MP303", ANY, "try twice the batch, and compare examples per second",
        "mpprof compare {run} RUN_WITH_TWICE_THE_BATCH", when=(its.only_infers,),
    ),
    *fused("MP304"),
    *in_bfloat16("MP304"),
    Row(
        "MP304", KERAS_3, "or a fixed loss_scale_factor with compile(auto_scale_loss=False)",
        "optimizer = keras.optimizers.{inner}(1e-3, loss_scale_factor=1024.0)\n"
        "model.compile(optimizer=optimizer, loss=model.loss, auto_scale_loss=False)",
    ),
    Row(
        "MP304", KERAS_2, "or a fixed scale: LossScaleOptimizer(optimizer, dynamic=False, initial_scale=1024)",
        "optimizer = {scaled_optimizer}({keras}.optimizers.{inner}(1e-3), dynamic=False, initial_scale=1024)",
    ),
    Row(
        "MP304", TORCH, "fused=True in the optimizer, which un-scales within its update",
        "optimizer = torch.optim.AdamW(model.parameters(), fused=True)", unless=(its.fused_optimizer,),
    ),
    Row("MP304", WITHOUT_KERAS, "or a fixed loss scale"),
)  # fmt: skip

HOST = (
    Row(
        "MP305", KERAS,
        "do the work of callbacks only every N steps or at the end of an epoch; use fewer per-batch metrics", loop=True,
    ),
    Row(
        "MP305", WITHOUT_KERAS,
        "do the work between steps (logs, metrics, checkpoints) only every N steps or at the end of an epoch",
        loop=True,
    ),
    Row(
        "MP305", ANY,
        "do this work every few epochs only; a checkpoint: save_best_only=True, save_weights_only=True",
        case="beside",
    ),
    Row(
        "MP305", ANY,
        "take work on the host (logging, waiting, copies to NumPy) out of the step's function, or do it every N steps",
        case="within", loop=True,
    ),
    Row("MP305", ANY, "read_every=16, as by default: mpprof then reads its counters less often", case="own, often"),
    Row("MP305", ANY, "none needed: of a training with longer steps and fits it is a smaller part", case="own"),
    *float32_for(
        "MP306", 'dtype="float32" for that layer, where its GPU kernel exists',
        '{keras}.layers.Lambda(f, dtype="float32")', "that op, where its GPU kernel exists",
    ),
    *fused("MP306", "(compiles kernels of its own)"),
    *fused("MP306", "checks on the device", "finite check"),
    Row(
        "MP306", KERAS, "mixed_bfloat16, which needs no loss scale and no check, where the device has it",
        '{set_policy}("mixed_bfloat16")', "finite check", unless=(its.lacks_bfloat16,),
    ),
    Row(
        "MP306", KERAS_3, "a fixed loss_scale_factor with compile(auto_scale_loss=False)",
        "optimizer = keras.optimizers.{inner}(1e-3, loss_scale_factor=1024.0)\n"
        "model.compile(optimizer=optimizer, loss=model.loss, auto_scale_loss=False)", "finite check",
    ),
    Row("MP306", WITHOUT_KERAS, "a fixed loss scale, which needs no check", case="finite check"),
    Row(
        "MP306", ON_TENSORFLOW, "use a newer TensorFlow; tf.debugging.set_log_device_placement(True) lists such ops",
        "tf.debugging.set_log_device_placement(True)",
    ),
    Row("MP306", ANY - ON_TENSORFLOW, "use a newer framework, which may have the kernel"),
    Row(
        "MP307", ON_TENSORFLOW,
        "where speed is measured, delete the call of tf.config.experimental.enable_op_determinism(): TensorFlow has "
        "no public call that switches determinism off again",
    ),
    Row(
        "MP307", ON_TORCH, "leave torch.use_deterministic_algorithms(True) out where speed is measured",
        "torch.use_deterministic_algorithms(False)",
    ),
    Row("MP307", ON_JAX, "leave --xla_gpu_deterministic_ops=true out of XLA_FLAGS where speed is measured"),
    Row("MP307", UNKNOWN, "switch deterministic ops off where speed is measured"),
    Row(
        "MP308", KERAS, "model.compile(..., run_eagerly=False)",
        "model.compile(optimizer=model.optimizer, loss=model.loss, run_eagerly=False)",
    ),
    Row("MP308", WITHOUT_KERAS, "compile the step into a graph"),
    Row(
        "MP309", KERAS_3, "use_cudnn=False on the recurrent layer, if the other layers take most of the step",
        "keras.layers.LSTM(256, use_cudnn=False)", "recurrent",
    ),
    Row("MP309", KERAS_2 | WITHOUT_KERAS, "a recurrent layer that can be compiled", case="recurrent"),
    Row("MP309", ANY, "move the preprocessing into the input pipeline", case="preprocessing"),
    Row("MP309", KERAS - ON_TORCH, "use a layer without ops that XLA does not support", case="layer"),
    Row("MP309", WITHOUT_KERAS | ON_TORCH, "a layer that can be compiled", case="layer"),
    Row("MP309", ANY, "no deterministic ops", case="determinism"),
    Row("MP309", KERAS, "jit_compile=True", COMPILE, "obstacles"),
    Row("MP309", WITHOUT_KERAS, "a compiled step", case="obstacles"),
    Row("MP309", KERAS, "model.compile(..., jit_compile=True)", COMPILE),
    Row("MP309", WITHOUT_KERAS, "a compiled step"),
)  # fmt: skip
