"""Remedies of MP4 (matrix products and convolutions), MP5 (the rest of the device's time) and MP6 (memory)."""

from __future__ import annotations

from mpprof.diagnosis.remedies import conditions as its
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
    KERAS_ON_TENSORFLOW,
    NVIDIA,
    WITHOUT_FLOAT8,
    Row,
    float32_for,
    fused,
    newer_library,
)

_SIZES = (
    (KERAS, "units, filters, batch and sequence length", "units"),
    (WITHOUT_KERAS, "features, channels, batch and sequence length", "features"),
)

MATRIX = (
    *(
        Row(
            "MP401", on, f"round {sizes} up to a multiple of {multiple}",
            f"{name} = -(-{name} // {multiple}) * {multiple}", when=when, unless=unless,
        )
        for on, sizes, name in _SIZES
        for multiple, when, unless in ((64, (its.is_ampere,), ()), (8, (), (its.is_ampere,)))
    ),
    Row(
        "MP401", ANY, "round the widths of layers up to a multiple of {multiple}, and the batch with them",
        case="tpu",
    ),
    Row(
        "MP402", ANY, "pad the vocabulary to a multiple of 64: vocabulary = -(-vocabulary // 64) * 64",
        "vocabulary = -(-vocabulary // 64) * 64",
    ),
    *(
        Row(
            "MP403", on,
            "pad the images to 4 channels (with a stride of 2) or 8, or fold 2 x 2 pixels into channels", snippet,
        )
        for on, snippet in (
            (KERAS, "images = {pad}(images, [[0, 0], [0, 0], [0, 0], [0, 1]])"),
            (TORCH, "images = torch.nn.functional.pad(images, (0, 0, 0, 0, 0, 1))"),
            (WITHOUT_KERAS - TORCH, ""),
        )
    ),
    *(
        Row("MP403", on, "give these convolutions 8 input channels or more: pad their input, or fold 2 x 2 pixels "
            "into channels", snippet, "later")
        for on, snippet in (
            (KERAS, "x = {pad}(x, [[0, 0], [0, 0], [0, 0], [0, 7]])"),
            (TORCH, "x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, 7))"),
            (WITHOUT_KERAS - TORCH, ""),
        )
    ),
    Row("MP404", ANY, "wider layers, a larger batch"),
    *fused("MP404", "to fuse what surrounds them"),
    *float32_for(
        "MP406", 'DepthwiseConv2D(..., dtype="float32") for those layers',
        '{keras}.layers.DepthwiseConv2D(3, dtype="float32")', "those convolutions",
    ),
    *newer_library("MP406"),
    *fused("MP406"),
    Row("MP407", ANY, "fewer groups with 8 or more channels each"),
    *newer_library("MP407"),
    *float32_for(
        "MP407", 'or dtype="float32" for that layer',
        '{keras}.layers.Conv2D(256, 3, groups=4, dtype="float32")', "those convolutions",
    ),
    Row("MP408", ANY, "cuDNN 8 or later", vendors=NVIDIA, unless=(its.has_cudnn_8,)),
    Row("MP408", ANY, "a newer MIOpen", vendors=AMD),
    Row(
        "MP408", KERAS, 'try data_format="channels_first" and "channels_last"',
        '{keras}.layers.Conv3D(64, 3, data_format="channels_first")',
    ),
    Row(
        "MP408", TORCH, "try memory_format=torch.channels_last_3d",
        "model = model.to(memory_format=torch.channels_last_3d)",
    ),
    Row("MP408", WITHOUT_KERAS - TORCH, "try both layouts: channels first and last"),
    Row(
        "MP409", ON_TENSORFLOW, "TF_CUDNN_WORKSPACE_LIMIT_IN_MB=8192",
        "TF_CUDNN_WORKSPACE_LIMIT_IN_MB=8192 python train.py", vendors=NVIDIA,
    ),
    Row(
        "MP409", ON_TORCH, "torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark = True",
        vendors=NVIDIA,
    ),
    Row(
        "MP409", ANY, "MIOPEN_FIND_ENFORCE=3, which tries algorithms out once",
        "MIOPEN_FIND_ENFORCE=3 python train.py", vendors=AMD,
    ),
    *newer_library("MP409"),
    Row("MP409", ANY, "another batch size"),
    Row("MP410", ANY, "use the layer's default arguments"),
    Row(
        "MP410", KERAS_3, "use_cudnn=True raises an error if the arguments rule cuDNN out",
        "keras.layers.LSTM(256, use_cudnn=True)", vendors=NVIDIA,
    ),
    Row(
        "MP411", TORCH, "torch.nn.functional.scaled_dot_product_attention, which is fused",
        "out = torch.nn.functional.scaled_dot_product_attention(query, key, value)",
    ),
    *fused("MP411"),
    Row(
        "MP411", JAX, "jax.nn.dot_product_attention, which may be fused",
        "out = jax.nn.dot_product_attention(query, key, value)",
    ),
    Row(
        "MP411", KERAS_ON_TENSORFLOW, "a backend with fused attention: KERAS_BACKEND=jax or torch",
        "KERAS_BACKEND=jax python train.py",
    ),
    Row("MP411", ANY, "shorter sequences"),
    Row(
        "MP412", KERAS_3,
        "find what casts the inputs of these ops to float32 (mpprof ops {run}), and compute in "
        "self.compute_dtype there",
        "x = keras.ops.cast(x, self.compute_dtype)",
    ),
    Row(
        "MP412", KERAS_2,
        "find what casts the inputs of these ops to float32 (mpprof ops {run}), and compute in "
        "self.compute_dtype there",
        "x = tf.cast(x, self.compute_dtype)",
    ),
    Row(
        "MP412", TORCH,
        "find what keeps the inputs of these ops in float32 (mpprof ops {run}), and put them inside "
        "torch.autocast",
        'with torch.autocast("cuda", dtype=torch.float16):\n    loss = loss_fn(model(x), y)',
    ),
    Row(
        "MP412", WITHOUT_KERAS - TORCH,
        "find what casts the inputs of these ops to float32 (mpprof ops {run})",
    ),
    Row(
        "MP412", TORCH, "run the evaluation inside torch.autocast, as the training is",
        'with torch.inference_mode(), torch.autocast("cuda", dtype=torch.float16):\n    y = model(x)',
        "outside autocast",
    ),
    Row("MP412", ANY, "none needed: no matrix unit takes such ops", case="never"),
    *(
        row
        for code, what in (("MP413", "with such sizes"), ("MP414", "that are too small"))
        for row in (
            Row(
                code, KERAS_3, f"leave layers {what} out of float8: model.quantize takes filters",
                WITHOUT_FLOAT8,
            ),
            Row(code, TORCH, f"leave layers {what} out of float8: torchao's convert_to_float8_training takes a filter",
                "convert_to_float8_training(model, module_filter_fn=lambda module, name: name not in {names})"),
            Row(code, ANY - KERAS_3 - TORCH, f"leave layers {what} out of float8"),
        )
    ),
    Row("MP413", ANY, "or make units, features and the batch multiples of 16"),
    Row("MP414", ANY, "a larger batch: more rows for the same casts of the weights", larger_batch=True),
)  # fmt: skip

LAYOUT = (
    Row(
        "MP405", KERAS_ON_TENSORFLOW, 'keras.config.set_image_data_format("channels_last")',
        'keras.config.set_image_data_format("channels_last")', "convolutions", unless=(its.channels_last,),
    ),
    Row(
        "MP405", KERAS_2, '{keras}.backend.set_image_data_format("channels_last")',
        '{keras}.backend.set_image_data_format("channels_last")', "convolutions", unless=(its.channels_last,),
    ),
    Row(
        "MP405", TENSORFLOW, 'data_format="NHWC" for the convolutions', case="convolutions",
        unless=(its.channels_last,),
    ),
    Row(
        "MP405", TORCH, "channels_last: model.to(memory_format=torch.channels_last), and the images too",
        "model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)",
        "convolutions", unless=(its.channels_last,),
    ),
    Row("MP405", UNKNOWN, "images with their channels last", case="convolutions", unless=(its.channels_last,)),
    Row(
        "MP405", ON_TENSORFLOW,
        "TensorFlow's layout optimizer inserted them: it runs float32 convolutions with channels first, and does not change those in 16 bits",
        case="convolutions", vendors=NVIDIA, when=(its.layout_optimizer, its.in_float32),
        unless=(its.lacks_tensor_cores,),
    ),
    *fused("MP405", "chooses layouts for the whole step", "convolutions"),
    Row(
        "MP405", ON_JAX,
        "XLA put them round the convolutions: give these the other order of axes, channels first or last",
        case="convolutions", when=(its.within_convolutions,),
    ),
    Row(
        "MP405", ANY, "do not permute axes between convolutions", case="convolutions",
        unless=(its.within_convolutions,),
    ),
    Row(
        "MP405", ANY,
        "16 bits can halve these transposes; a larger batch spreads them over more images (the convolutions' "
        "own filters are transposed at every use, whatever the layout of the images)",
        case="filters",
    ),
    *fused("MP405", "fuses them into their neighbours", "products"),
    *(
        Row("MP405", on, f"use {how} on the tensors in their own layout instead of a transpose before the product",
            case="products")
        for on, how in (
            (KERAS_3, "keras.ops.einsum"), (KERAS_2 | TENSORFLOW, "tf.einsum"), (TORCH, "torch.einsum"),
            (JAX, "jnp.einsum"), (UNKNOWN, "einsum"),
        )
    ),
)  # fmt: skip

REST = (
    *fused("MP501", "fuses norms and their casts"),
    Row(
        "MP501", ANY,
        "the step is compiled, and the norms are still not fused: use fewer norms, and fold those of frozen layers into their convolutions",
        when=(its.compiled,),
    ),
    Row(
        "MP501", JAX | UNKNOWN, "use fewer norms, and fold those of frozen layers into their convolutions",
        unless=(its.compiled,),
    ),
    *fused("MP502", "fuses this work"),
    Row("MP502", ANY, "fewer separate activations, additions and dropouts"),
    *fused("MP503", "fuses casts into their neighbours"),
    Row("MP503", ANY, "fewer float32 layers"),
    Row("MP503", ANY, "a larger batch", larger_batch=True),
    *fused("MP503", "fuses casts into their neighbours", "without the layers"),
    Row("MP503", ANY, "fewer float32 layers", case="without the layers"),
    *fused("MP504", "fuses the update"),
    Row(
        "MP504", TORCH, "fused=True in the optimizer",
        "optimizer = torch.optim.AdamW(model.parameters(), fused=True)", unless=(its.fused_optimizer,),
    ),
    Row(
        "MP504", KERAS_3, "gradient_accumulation_steps spreads the update over several steps",
        "optimizer = keras.optimizers.Adam(1e-3, gradient_accumulation_steps=4)",
    ),
    Row("MP504", ANY, "use a larger batch, which spreads the update over more examples", larger_batch=True),
    Row(
        "MP505", KERAS, "a smaller table: hash the ids",
        "ids = {keras}.layers.Hashing(num_bins=100_000)(ids)\nx = {keras}.layers.Embedding(100_000, width)(ids)",
    ),
    Row(
        "MP505", KERAS, "an optimizer without slots",
        "optimizer = {keras}.optimizers.SGD(1e-2)",
    ),
    Row(
        "MP505", WITHOUT_KERAS - TORCH,
        "a smaller table (hashed ids), an optimizer without slots, or an update of only the touched rows",
    ),
    Row(
        "MP505", TORCH, "torch.nn.Embedding(..., sparse=True) with torch.optim.SparseAdam; a smaller table",
        "table = torch.nn.Embedding(rows, width, sparse=True)\n"
        "optimizer = torch.optim.SparseAdam(table.parameters())",
    ),
    *fused("MP506", "fuses the clipping"),
    Row(
        "MP506", KERAS, "clipnorm (per variable) instead of global_clipnorm, on the inner optimizer",
        "optimizer = {scaled_optimizer}({keras}.optimizers.Adam(1e-3, clipnorm=1.0))",
    ),
    Row(
        "MP506", TORCH, "foreach=True in torch.nn.utils.clip_grad_norm_, which takes all gradients at once",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)",
    ),
    Row("MP506", WITHOUT_KERAS - TORCH, "clipping per variable instead of by the global norm"),
    Row(
        "MP507", KERAS, "give the loss logits: no softmax at the model's end, and from_logits=True",
        "loss = {keras}.losses.{cross_entropy}(from_logits=True)\nmodel.compile(optimizer=model.optimizer, loss=loss)",
        "probabilities",
    ),
    Row(
        "MP507", TORCH, "give the loss logits: cross_entropy takes them as they are",
        "loss = torch.nn.functional.cross_entropy(logits, labels)", "probabilities",
    ),
    Row("MP507", WITHOUT_KERAS - TORCH, "compute the loss from logits (log_softmax), without a softmax before it", case="probabilities"),
    Row("MP507", ANY, "compute the loss in chunks of the sequence"),
    *fused("MP507"),
    Row("MP507", ANY, "a smaller vocabulary"),
    Row(
        "MP508", KERAS, "jit_compile=True sums in kernels of its own", COMPILE, unless=(its.compiled,), loop=True,
    ),
    Row(
        "MP508", TENSORFLOW, "@tf.function(jit_compile=True) on the step sums in kernels of its own",
        "train_step = tf.function(train_step, jit_compile=True)", unless=(its.compiled,), loop=True,
    ),
    Row(
        "MP508", KERAS, "use_bias=False: needless before batch normalisation; elsewhere it changes the model",
        "layer = {keras}.layers.Conv2D(filters, 3, use_bias=False)",
    ),
    Row("MP508", WITHOUT_KERAS, "leave biases out before batch normalisation"),
    Row("MP601", ANY, "use a larger batch, so that activations are a larger share", larger_batch=True),
    Row(
        "MP601", KERAS, "use an optimizer with fewer slots for each parameter: Lion, SGD with momentum, Adafactor",
        "optimizer = {keras}.optimizers.Lion(1e-4)", unless=(its.only_infers,),
    ),
    Row(
        "MP601", WITHOUT_KERAS, "use an optimizer with fewer slots for each parameter: Lion, SGD with momentum, Adafactor",
        unless=(its.only_infers,),
    ),
    Row("MP602", ANY, "read the allocator's peak, which mpprof shows"),
    Row(
        "MP602", ON_TENSORFLOW, "or set TF_FORCE_GPU_ALLOW_GROWTH=true",
        "TF_FORCE_GPU_ALLOW_GROWTH=true python train.py",
    ),
    Row(
        "MP602", ON_JAX, "or set XLA_PYTHON_CLIENT_PREALLOCATE=false",
        "XLA_PYTHON_CLIENT_PREALLOCATE=false python train.py",
    ),
    Row("MP602", ON_TORCH, "or torch.cuda.max_memory_allocated()", "torch.cuda.max_memory_allocated()"),
    *fused("MP603"),
    Row("MP603", ANY, "or cast the weight once, before the loop or the calls that share it"),
    *fused("MP604"),
    Row("MP604", ANY, "or fewer normalisation layers, or recompute them in the backward pass"),
    Row(
        "MP605", ON_TENSORFLOW, "limit cuDNN's workspaces",
        "TF_CUDNN_WORKSPACE_LIMIT_IN_MB=256 python train.py", vendors=NVIDIA,
    ),
    Row("MP605", ANY, "try another batch size, for which the library may choose another algorithm"),
    *fused("MP606"),
    Row("MP606", ANY, "judge by the peak after warm-up, which mpprof records"),
    Row(
        "MP607", ON_TENSORFLOW, "let CUDA place the blocks",
        "TF_GPU_ALLOCATOR=cuda_malloc_async python train.py", vendors=NVIDIA,
    ),
    Row(
        "MP607", ON_JAX, "let CUDA place the blocks",
        "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async python train.py", vendors=NVIDIA,
    ),
    Row(
        "MP607", ANY,
        "try another batch size: a free block is given out whole unless half of it, or 128 MiB, would be left",
    ),
    Row(
        "MP607", ANY, "batches of one shape: drop the remainder, pad to few lengths", case="pieces",
        where="free memory in small pieces",
    ),
    Row(
        "MP607", ANY, "none needed: most of the allocator's memory is free", case="plenty",
        where="most of the memory free",
    ),
)  # fmt: skip
