"""Remedies of MP9 (is the measurement valid?), and what to record where something is missing."""

from __future__ import annotations

from mpprof.diagnosis.remedies import conditions as its
from mpprof.diagnosis.remedies.frameworks import (
    ANY,
    JAX,
    KERAS,
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
)

_TRY, _RUN = "mpprof try {script}", "mpprof run"
_TRIED = f"{_TRY} measures it"
_TRIED_IN_16_BITS = f"{_TRY} measures what 16 bits bring"
_EXTRA_RUN = "profile one extra run"
_NO_BUFFERS = "XLA_FLAGS=--xla_gpu_enable_command_buffer="

VALIDITY = (
    Row(
        "MP901", ANY, "train longer, with batches of one shape; look for recompilation (MP902) and drift (MP807)",
        case="never settled",
    ),
    Row(
        "MP901", ANY, "profile later steps: profile_steps=({first}, {last})",
        '{recorder}("logs/run", profile_steps=({first}, {last}))', "early window", unless=(its.launched,),
    ),
    Row(
        "MP901", ANY, "profile later steps: --profile {first}:{last}", f"{_RUN} --profile {{first}}:{{last}} {{script}}",
        "early window", when=(its.launched,),
    ),
    Row(
        "MP901", ANY, "profile later steps, and do not empty the allocator's cache between them",
        case="allocating",
    ),
    Row("MP901", ANY, "compare the mean of the steady steps (shown here), and train longer", case="mostly"),
    Row(
        "MP901", ANY,
        "leave the first epoch out of comparisons; the mean of the steady steps is shown here",
        case="first epoch",
    ),
    Row(
        "MP902", KERAS_ON_JAX, "jit_compile=True: without it JAX traces the gradient anew in each step", COMPILE,
        when=(its.eager_jax,), unless=(its.compiled,), loop=True,
    ),
    Row(
        "MP902", ON_TENSORFLOW, "constant shapes: .batch(n, drop_remainder=True), padding to a few lengths",
        "data = data.batch(64, drop_remainder=True)", loop=True,
    ),
    Row(
        "MP902", ON_TORCH, "constant shapes: DataLoader(..., drop_last=True), padding to a few lengths",
        "data = DataLoader(dataset, batch_size=64, drop_last=True)", loop=True,
    ),
    Row(
        "MP902", ON_JAX | UNKNOWN, "constant shapes: .batch(n, drop_remainder=True), padding to a few lengths",
        "data = data.batch(64, drop_remainder=True)", when=(its.from_tf_data,), loop=True,
    ),
    Row(
        "MP902", ON_JAX | UNKNOWN, "constant shapes: no smaller last batch, padding to a few lengths",
        unless=(its.from_tf_data,), loop=True,
    ),
    Row(
        "MP902", TENSORFLOW, "reduce_retracing=True in tf.function",
        "train_step = tf.function(train_step, reduce_retracing=True)", loop=True,
    ),
    Row(
        "MP902", TORCH, "torch.compile(model, dynamic=True)", "model = torch.compile(model, dynamic=True)",
        when=(its.compiled,), loop=True,
    ),
    Row(
        "MP902", KERAS - ON_JAX, "jit_compile=False",
        "model.compile(optimizer=model.optimizer, loss=model.loss, jit_compile=False)", when=(its.compiled,),
        loop=True,
    ),
    Row(
        "MP902", KERAS, "compile one model once and fit it again, its weights set back where it starts anew: "
        "a new model, and model.compile(), compile the step anew",
        case="each fit",
    ),
    Row(
        "MP902", ANY - KERAS, "build the model and its step once, and set the weights back where it starts anew",
        case="each fit",
    ),
    Row(
        "MP903", KERAS, "measure the time between two waits for the device, as MPProfilerCallback does",
        'model.fit(data, callbacks=[mpprof.MPProfilerCallback("logs/run")])', unless=(its.recorded,), loop=True,
    ),
    Row("MP903", KERAS, "use the step time of the trace", when=(its.recorded,), loop=True),
    Row(
        "MP903", TORCH, "wait for the device: StepRecorder(..., wait=torch.cuda.synchronize)",
        'StepRecorder("logs/run", wait=torch.cuda.synchronize)', loop=True,
    ),
    Row(
        "MP903", JAX, "wait for the device: StepRecorder(..., wait=lambda: jax.block_until_ready(params))",
        'StepRecorder("logs/run", wait=lambda: jax.block_until_ready(params))', loop=True,
    ),
    Row(
        "MP903", TENSORFLOW | UNKNOWN, "measure the time between two waits for the device, as StepRecorder does", loop=True
    ),
    Row(
        "MP904", KERAS - ON_TORCH, "none needed; steps_per_execution=1 shows single steps",
        "model.compile(optimizer=model.optimizer, loss=model.loss, steps_per_execution=1)",
    ),
    Row("MP904", WITHOUT_KERAS | ON_TORCH, "none needed"),
    Row("MP905", ANY, "record the window again while nothing else runs", case="load"),
    Row("MP905", ANY, "profile fewer steps", unless=(its.few_steps,)),
    Row("MP905", ANY, "take the shares from the profiled steps, and the times from the other steps"),
    Row(
        "MP905", KERAS, "let {recorder} open the window: its tracers add little overhead",
        '{recorder}("logs/run", profile_steps="auto")', unless=(its.own_window,), loop=True,
    ),
    Row(
        "MP905", ON_TENSORFLOW, "no Python tracer, and host tracer level 2 or lower",
        "options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)",
        unless=(its.own_window,), loop=True,
    ),
    Row(
        "MP905", ON_JAX, "no Python tracer, and host tracer level 2 or lower",
        "options = jax.profiler.ProfileOptions()\noptions.python_tracer_level = 0",
        unless=(its.own_window,), loop=True,
    ),
    Row(
        "MP905", ON_TORCH, "no stacks, shapes or memory in torch.profiler.profile",
        "torch.profiler.profile(with_stack=False, record_shapes=False, profile_memory=False)",
        unless=(its.own_window,), loop=True,
    ),
    Row(
        "MP906", KERAS, 'record the baseline with {set_policy}("float32")', '{set_policy}("float32")',
        "mixed baseline",
    ),
    Row("MP906", TORCH, "record the baseline in float32, without torch.autocast", case="mixed baseline"),
    Row("MP906", WITHOUT_KERAS - TORCH, "record the baseline in float32", case="mixed baseline"),
    Row(
        "MP906", ANY, "name the runs the other way round: mpprof report MIXED_RUN --baseline FLOAT32_RUN",
        "mpprof report {baseline} --baseline {run}", "swapped",
    ),
    Row(
        "MP906", KERAS, 'record the baseline with the same script and only {set_policy}("float32") changed',
        '{set_policy}("float32")', "unlike", when=(its.in_16_bits,),
    ),
    Row(
        "MP906", TORCH, "record the baseline with the same script, and remove only torch.autocast", case="unlike",
        when=(its.in_16_bits,),
    ),
    Row(
        "MP906", WITHOUT_KERAS - TORCH, "record the baseline with the same script, and change only the precision to float32", case="unlike", when=(its.in_16_bits,),
    ),
    Row(
        "MP906", ANY, "record both with the same script, and change only the precision",
        case="unlike", unless=(its.in_16_bits,),
    ),
    Row(
        "MP906", ANY, "none needed if the comparison is meant to test this change; otherwise change one thing at a time",
        case="ladder",
    ),
    Row("MP907", ANY, "mpprof kernels RUN shows them", "mpprof kernels {run}"),
    Row(
        "MP907", ANY, "mpprof verify -- CMD decides by hardware counters", "mpprof verify -- python train.py",
        vendors=NVIDIA,
    ),
    Row("MP908", ANY, "run `mpprof doctor`", "mpprof doctor"),
    Row(
        "MP908", ANY,
        "permit profiling (NVreg_RestrictProfilingToAdminUsers=0, or --cap-add=SYS_ADMIN in a container) and put "
        "CUPTI on LD_LIBRARY_PATH",
        "export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/usr/local/cuda/extras/CUPTI/lib64", vendors=NVIDIA,
    ),
    Row(
        "MP908", ANY,
        "check that ROCm's tracing library (rocprofiler-sdk or roctracer) is installed, and that you are in the groups render and video",
        "groups", vendors=AMD,
    ),
    Row("MP908", ANY, "do not run another profiler at the same time"),
    Row(
        "MP908", ANY, "record again with: nsys profile --trace=cuda,nvtx --cuda-graph-trace=node",
        "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node python train.py", "nsys", vendors=NVIDIA,
    ),
    Row("MP908", ANY, "record again, with the device's kernels", case="nsys", vendors=NOT_NVIDIA),
    Row("MP908", ANY, "profile fewer steps: the profiler may then keep the events of all devices", case="some"),
    Row(
        "MP909", ANY, "profile fewer steps (five are enough)", '{recorder}("logs/run", profile_steps=(12, 16))',
        unless=(its.few_steps, its.launched),
    ),
    Row(
        "MP909", ANY, "profile fewer steps (five are enough)", f"{_RUN} --profile 12:16 {{script}}",
        when=(its.launched,), unless=(its.few_steps,),
    ),
    Row("MP909", ANY, "copy the file whole"),
    Row(
        "MP910", ANY,
        'train longer, or open the window earlier: {recorder}("logs/run", profile_steps=(12, 16))',
        '{recorder}("logs/run", profile_steps=(12, 16))', unless=(its.launched,),
    ),
    Row(
        "MP910", ANY, "train longer, or open the window earlier: --profile 12:16", f"{_RUN} --profile 12:16 {{script}}",
        when=(its.launched,),
    ),
    Row(
        "MP910", ANY, "mpprof doctor shows what the profiler lacks on this machine; then record again",
        "mpprof doctor", "failed",
    ),
    Row(
        "MP910", ANY, 'ask for one: {recorder}("logs/run", profile_steps="auto")',
        '{recorder}("logs/run", profile_steps="auto")', "not asked",
    ),
    Row("MP911", ANY, "train for at least {enough} steady steps (about {twice} in all)"),
    Row("MP911", ANY, "train with longer fits: {twice} steps or more in one", case="short fits"),
    Row(
        "MP911", KERAS - ON_TORCH,
        "make each epoch several calls of the training function: smaller batches, fewer steps_per_execution, or "
        "steps_per_epoch={enough} with data.repeat()",
        "model.fit(data.repeat(), steps_per_epoch={enough})", "epochs of one call",
    ),
    Row(
        "MP911", WITHOUT_KERAS | ON_TORCH, "make each epoch several calls of the training function: smaller batches", case="epochs of one call"
    ),
    Row(
        "MP913", ANY, "mend what raised the error: the training's own output has the traceback",
    ),
    Row("MP913", ANY, "mpprof memory says what to try", "mpprof memory {run}", "out of memory"),
    Row(
        "MP912", ON_TENSORFLOW | ON_JAX, f"{_EXTRA_RUN} with {_NO_BUFFERS} set before the backend starts",
        f"{_NO_BUFFERS} python train.py", unless=(its.from_nsys,),
    ),
    Row(
        "MP912", TORCH,
        f'{_EXTRA_RUN} without graphs: torch.compile without mode="reduce-overhead", vLLM with enforce_eager=True',
        "model = torch.compile(model)", unless=(its.from_nsys,),
    ),
    Row("MP912", UNKNOWN | KERAS_ON_TORCH, f"{_EXTRA_RUN} without graphs", unless=(its.from_nsys,)),
    Row(
        "MP912", ANY, f"{_EXTRA_RUN} with nsys profile --cuda-graph-trace=node",
        "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node python train.py", vendors=NVIDIA,
        when=(its.from_nsys,),
    ),
)  # fmt: skip

_SO_THAT = "so that the run's facts are recorded"
_ROUND_THE_LOOP = f'put {{recorder}}("logs/run") round the training loop {_SO_THAT}'
_LOOP = """with {recorder}("logs/run") as recorder:
    for batch in recorder.batches(data):
        with recorder.step():
            train_step(batch)"""

RECORDS = (
    Row(
        "record run", KERAS, f'train with {{recorder}}("logs/run") {_SO_THAT}',
        'model.fit(data, callbacks=[{recorder}("logs/run")])', unless=(its.recorded,), loop=True,
    ),
    Row(
        "record run", WITHOUT_KERAS, _ROUND_THE_LOOP, _LOOP, unless=(its.recorded,), loop=True,
    ),
    Row(
        "record model", UNKNOWN, 'put {recorder}("logs/run", model=model) round the training loop',
        '{recorder}("logs/run", model=model)', unless=(its.recorded,),
    ),
    Row(
        "record model", KERAS, 'give it the model: StepRecorder("logs/run", model=model, optimizer=optimizer)',
        'StepRecorder("logs/run", model=model, optimizer=optimizer)', when=(its.recorded, its.own_loop),
    ),
    Row(
        "record model", KERAS, f'train with {{recorder}}("logs/run") {_SO_THAT}',
        'model.fit(data, callbacks=[{recorder}("logs/run")])', unless=(its.recorded,),
    ),
    Row(
        "record window", ANY, 'record a profile window: {recorder}("logs/run", profile_steps="auto")',
        '{recorder}("logs/run", profile_steps="auto")', unless=(its.own_window,), loop=True,
    ),
    Row(
        "record steps", KERAS, 'record with {recorder}("logs/run", profile_steps="auto"), which marks each step',
        '{recorder}("logs/run", profile_steps="auto")', unless=(its.from_nsys,), loop=True,
    ),
    Row(
        "record steps", TORCH, "call profiler.step() after each step", "profiler.step()", unless=(its.from_nsys,), loop=True,
    ),
    Row(
        "record steps", TENSORFLOW, 'put tf.profiler.experimental.Trace("train", step_num=n, _r=1) round each step',
        'with tf.profiler.experimental.Trace("train", step_num=n, _r=1):\n    train_step(batch)',
        unless=(its.from_nsys,), loop=True,
    ),
    Row(
        "record steps", JAX, 'put jax.profiler.StepTraceAnnotation("train", step_num=n) round each step',
        'with jax.profiler.StepTraceAnnotation("train", step_num=n):\n    train_step(batch)',
        unless=(its.from_nsys,), loop=True,
    ),
    Row(
        "record steps", UNKNOWN, 'put {recorder}("logs/run", profile_steps="auto") round the training loop, which marks each step',
        _LOOP, unless=(its.from_nsys,), loop=True,
    ),
    Row(
        "record steps", TORCH, 'put torch.cuda.nvtx.range("step") round each step',
        'with torch.cuda.nvtx.range("step"):\n    train_step(batch)', when=(its.from_nsys,), loop=True,
    ),
    Row(
        "record steps", ANY - TORCH, 'put an NVTX range round each step: nvtx.annotate("step")',
        'with nvtx.annotate("step"):\n    train_step(batch)', when=(its.from_nsys,), loop=True,
    ),
    Row(
        "record host events", ON_TENSORFLOW, "record host events too (host tracer level 2)",
        "options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2)", unless=(its.has_host_events, its.own_window, its.from_nsys),
        loop=True,
    ),
    Row(
        "record host events", ON_JAX, "record host events too (host tracer level 2)",
        "options = jax.profiler.ProfileOptions()\noptions.host_tracer_level = 2", unless=(its.has_host_events, its.own_window, its.from_nsys),
        loop=True,
    ),
    Row(
        "record host events", ON_TORCH, "record the CPU's activities too",
        "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        unless=(its.has_host_events, its.own_window, its.from_nsys), loop=True,
    ),
    Row(
        "record host events", ANY, "record the host's calls too: nsys profile --trace=cuda,nvtx,osrt",
        "nsys profile --trace=cuda,nvtx,osrt python train.py", vendors=NVIDIA, when=(its.from_nsys,), unless=(its.has_host_events,),
    ),
    Row(
        "record without graphs", ON_TENSORFLOW | ON_JAX, f"record once with {_NO_BUFFERS}",
        f"{_NO_BUFFERS} python train.py", unless=(its.from_nsys, its.launches_one_by_one),
    ),
    Row(
        "record other precision", KERAS, _TRIED_IN_16_BITS, _TRY, when=(its.in_float32,), unless=(its.only_infers,), loop=True,
    ),
    Row(
        "record other precision", ANY - KERAS,
        "record the same run in mixed precision: mpprof report MIXED_RUN --baseline THIS_RUN",
        "mpprof report MIXED_RUN --baseline {run}", when=(its.in_float32,), unless=(its.only_infers,), loop=True,
    ),
    Row(
        "record other precision", ANY,
        "record the same inference in 16 bits: mpprof report RUN_IN_16_BITS --baseline THIS_RUN",
        "mpprof report RUN_IN_16_BITS --baseline {run}", when=(its.in_float32, its.only_infers),
    ),
    Row(
        "record other precision", ANY,
        "name another run of the same inference: mpprof report RUN --baseline OTHER_RUN",
        "mpprof report {run} --baseline OTHER_RUN", when=(its.in_16_bits, its.only_infers),
    ),
    Row(
        "record other precision", KERAS, _TRIED, _TRY, when=(its.in_16_bits,), unless=(its.only_infers,), loop=True,
    ),
    Row(
        "record other precision", ANY - KERAS,
        "record the same run in float32 and name it: mpprof report RUN --baseline FLOAT32_RUN",
        "mpprof report {run} --baseline FLOAT32_RUN", when=(its.in_16_bits,), unless=(its.only_infers,), loop=True,
    ),
    Row("record other precision", KERAS, _TRIED_IN_16_BITS, _TRY, "how", when=(its.in_float32,), unless=(its.own_loop,)),
    Row("record other precision", KERAS, _TRIED, _TRY, "how", when=(its.in_16_bits,), unless=(its.own_loop,)),
    Row(
        "record other precision", KERAS,
        'Record the same training with {set_policy}("mixed_float16") before the model is built, then run: mpprof '
        "report logs/mixed --baseline {run}",
        "mpprof report logs/mixed --baseline {run}", "how", when=(its.in_float32, its.own_loop),
    ),
    Row(
        "record other precision", TORCH,
        'Record the same steps under torch.autocast("cuda", dtype=torch.bfloat16), on the same card, then run: '
        "mpprof report MIXED --baseline {run}",
        "mpprof report MIXED --baseline {run}", "how", when=(its.in_float32,), unless=(its.lacks_bfloat16,),
    ),
    Row(
        "record other precision", TORCH,
        'Record the same steps under torch.autocast("cuda", dtype=torch.float16), on the same card, then run: '
        "mpprof report MIXED --baseline {run}",
        "mpprof report MIXED --baseline {run}", "how", when=(its.in_float32, its.lacks_bfloat16),
    ),
    Row(
        "record other precision", WITHOUT_KERAS - TORCH,
        "Record the same steps in 16 bits on the same card, then run: mpprof report MIXED --baseline {run}",
        "mpprof report MIXED --baseline {run}", "how", when=(its.in_float32,),
    ),
    Row(
        "record other precision", KERAS,
        'Record one: put {set_policy}("float32") before the model is built, train for two epochs with '
        '{recorder}("logs/float32") and the same batch size, then run: mpprof report {run} --baseline '
        "logs/float32",
        "mpprof report {run} --baseline logs/float32", "how", when=(its.in_16_bits, its.own_loop),
    ),
    Row(
        "record other precision", TORCH,
        "Record the same steps in float32, without torch.autocast, on the same card, then run: mpprof report "
        "{run} --baseline FLOAT32; {recorder} records the step times for an error bar too",
        "mpprof report {run} --baseline FLOAT32", "how", when=(its.in_16_bits,),
    ),
    Row(
        "record other precision", WITHOUT_KERAS - TORCH,
        "Record the same steps in float32 on the same card, then run: mpprof report {run} --baseline FLOAT32; "
        "{recorder} records the step times for an error bar too",
        "mpprof report {run} --baseline FLOAT32", "how", when=(its.in_16_bits,),
    ),
    Row(
        "record other precision", ANY,
        "train on a GPU or a TPU: among x86 CPUs, only those with AMX, AVX512-BF16 or AVX512-FP16 gain from 16 bits",
        when=(its.of_a_cpu_alone,), unless=(its.in_float32, its.in_16_bits),
    ),
    Row(
        "record other precision", ANY,
        "Train on a GPU or a TPU: among x86 CPUs, only those with AMX, AVX512-BF16 or AVX512-FP16 gain from 16 bits", case="how",
        when=(its.of_a_cpu_alone,), unless=(its.in_float32, its.in_16_bits),
    ),
    Row(
        "record other precision", ANY, "record it once in float32 and once in 16 bits",
        "mpprof report MIXED --baseline FLOAT32", unless=(its.in_float32, its.in_16_bits, its.of_a_cpu_alone),
    ),
    Row(
        "record other precision", ANY,
        "Record it once in float32 and once in 16 bits, each with {recorder}(logdir), which keeps the policy; then "
        "run: mpprof report MIXED --baseline FLOAT32",
        "mpprof report MIXED --baseline FLOAT32", "how",
        unless=(its.in_float32, its.in_16_bits, its.of_a_cpu_alone),
    ),
)  # fmt: skip
