"""Remedies of MP1 (is mixed precision in effect?), MP2 (numerics and loss scaling) and MP8 (the card)."""

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
    ADAM_SCALED,
    AMD,
    COMPILE,
    NVIDIA,
    OTHER_VENDORS,
    SCALED,
    Row,
    in_bfloat16,
    non_finite,
)

IN_EFFECT = (
    Row(
        "MP101", KERAS,
        'call {set_policy}("{policy}") before the model is built (a loaded model keeps the policies it was '
        "saved with: rebuild it and load its weights)",
        '{set_policy}("{policy}")\nmodel = build_model()',
    ),
    Row(
        "MP101", KERAS, 'drop dtype="float32" where the layers are made: they take the policy then',
        case="given", where="where each layer was given its type",
    ),
    Row("MP101", WITHOUT_KERAS, "set the type to compute in before the model is built"),
    Row("MP101", WITHOUT_KERAS, "give the layers the 16-bit type, not float32", case="given"),
    Row(
        "MP102", KERAS, '{set_policy}("mixed_float16") before building, or {scaled_optimizer}(optimizer)',
        SCALED,
    ),
    Row(
        "MP102", KERAS_3, "and in your own train_step: loss = self.optimizer.scale_loss(loss) before taking gradients",
        "loss = self.optimizer.scale_loss(loss)", when=(its.own_training_step,),
    ),
    Row("MP102", TORCH, "scale the loss with torch.amp.GradScaler", 'scaler = torch.amp.GradScaler("cuda")'),
    Row("MP102", WITHOUT_KERAS - TORCH, "multiply the loss by a scale, and divide the gradients by it"),
    Row(
        "MP103", KERAS_3,
        "loss = optimizer.scale_loss(loss) before taking gradients, and no un-scaling of your own: "
        "optimizer.apply does it",
        "scaled = optimizer.scale_loss(loss)",
    ),
    Row(
        "MP103", KERAS_2,
        "optimizer.get_scaled_loss(loss) before taking gradients, and optimizer.get_unscaled_gradients once "
        "after it",
        "scaled = optimizer.get_scaled_loss(loss)\n"
        "gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, variables))",
    ),
    Row(
        "MP103", TORCH, "scaler.scale(loss).backward() before scaler.step(optimizer)",
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
    ),
    Row("MP103", WITHOUT_KERAS - TORCH, "multiply the loss by the scale before taking gradients"),
    Row(
        "MP104", KERAS_3,
        "compute in self.compute_dtype with keras.ops instead of casting to float32; drop "
        'dtype="float32" from the layer; keep float32 for the last activation only: '
        'Activation("softmax", dtype="float32") after a Dense in 16 bits',
        "x = keras.ops.cast(x, self.compute_dtype)",
    ),
    Row(
        "MP104", KERAS_2,
        'compute in self.compute_dtype instead of casting to float32; drop dtype="float32" from the layer; '
        'keep float32 for the last activation only: Activation("softmax", dtype="float32") after a Dense in '
        "16 bits",
        "x = tf.cast(x, self.compute_dtype)",
    ),
    Row(
        "MP104", KERAS, 'give {islands} the model\'s policy: drop dtype="float32" there, which only the last '
        "activation needs", case="policy",
    ),
    Row(
        "MP104", TORCH, "keep the module inside torch.autocast: no .float() and no autocast(enabled=False) there",
        'with torch.autocast("cuda", dtype=torch.float16):\n    loss = loss_fn(model(x), y)',
    ),
    Row("MP104", JAX, "compute in the type of the inputs: no .astype(jnp.float32) before the products"),
    Row("MP104", TENSORFLOW | UNKNOWN, "compute in the type of the inputs instead of casting to float32"),
    Row(
        "MP104", WITHOUT_KERAS, "compute {islands} in 16 bits, like the rest of the model", case="policy",
    ),
    Row(
        "MP105", KERAS, '{set_policy}("mixed_float16") before the model is built',
        '{set_policy}("mixed_float16")\nmodel = build_model()',
    ),
    Row("MP105", WITHOUT_KERAS, "cast the inputs of the matrix products to 16 bits in the model itself"),
    Row(
        "MP106", KERAS,
        'leave the last product in 16 bits and end with {keras}.layers.Activation("{activation}", dtype="float32")',
        'outputs = {keras}.layers.Activation("{activation}", dtype="float32")(x)',
        where="a last layer of many outputs",
    ),
    Row(
        "MP106", KERAS,
        'give the last layer dtype="float32": it is small, and its product may overflow in 16 bits',
        'outputs = {keras}.layers.Dense({units}, activation="{activation}", dtype="float32")(x)', "small",
        where="a dense last layer of fewer than 8,192 outputs",
    ),
    Row("MP106", WITHOUT_KERAS, "cast the outputs to float32 before the loss", case="small"),
    Row("MP106", TORCH, "compute the loss from outputs.float()", "loss = loss_fn(model(x).float(), y)"),
    Row("MP106", JAX, "compute the loss from outputs.astype(jnp.float32)"),
    Row("MP106", TENSORFLOW | UNKNOWN, "cast the outputs to float32 before the loss"),
    Row(
        "MP106", KERAS_3, 'let its call() end with keras.ops.cast(outputs, "float32")',
        'outputs = keras.ops.cast(x, "float32")', "not recorded", where="a subclassed model",
    ),
    Row(
        "MP106", KERAS_2, "let its call() end with tf.cast(outputs, tf.float32)",
        "outputs = tf.cast(x, tf.float32)", "not recorded",
    ),
    Row("MP106", WITHOUT_KERAS, "cast the outputs to float32 before the loss", case="not recorded"),
    Row(
        "MP107", KERAS, "replace operations between layers by layers (Add, Multiply), or cast once where the tensor is made",
        "x = {keras}.layers.Add()([a, b])",
    ),
    Row("MP107", WITHOUT_KERAS, "cast once where the tensor is made"),
)  # fmt: skip

LOSS_SCALING = (
    *non_finite("MP201"),
    Row("MP201", ANY, "put that layer in float32, or lower the learning rate"),
    *in_bfloat16("MP201", "or "),
    Row("MP202", KERAS, "LossScaleOptimizer(optimizer) with its dynamic scale", ADAM_SCALED),
    Row(
        "MP202", KERAS_3, "or loss_scale_factor=1024.0 with compile(auto_scale_loss=False)",
        "optimizer = keras.optimizers.{inner}(1e-3, loss_scale_factor=1024.0)\n"
        "model.compile(optimizer=optimizer, loss=model.loss, auto_scale_loss=False)",
    ),
    Row("MP202", TORCH, "torch.amp.GradScaler with its dynamic scale", 'scaler = torch.amp.GradScaler("cuda")'),
    Row("MP202", WITHOUT_KERAS - TORCH, "a dynamic loss scale, or a fixed one of 1024"),
    Row(
        "MP202", ANY, "keep in float32 what mpprof numerics RUN shows to be lost", case="lost",
        where="values that no loss scale brings back",
    ),
    Row(
        "MP203", KERAS_3, "check that your training step calls optimizer.scale_loss(loss) before it takes gradients",
        "scaled = optimizer.scale_loss(loss)", when=(its.may_be_unscaled,),
    ),
    Row(
        "MP203", KERAS_2, "check that your training step calls optimizer.get_scaled_loss(loss) before it takes gradients",
        "scaled = optimizer.get_scaled_loss(loss)", when=(its.may_be_unscaled,),
    ),
    Row("MP203", ANY - KERAS, "check that the loss is scaled before its gradients are taken", when=(its.may_be_unscaled,)),
    Row("MP203", ANY, "find out why no gradient ever overflows (is the backward pass float16 at all?)"),
    Row(
        "MP203", KERAS_3,
        "a fixed scale stops the growth: keras.optimizers.{inner}(1e-3, loss_scale_factor=2.0**15), "
        "compile(auto_scale_loss=False)",
        "optimizer = keras.optimizers.{inner}(1e-3, loss_scale_factor=2.0**15)\n"
        "model.compile(optimizer=optimizer, loss=model.loss, auto_scale_loss=False)",
        unless=(its.may_be_unscaled,),
    ),
    Row(
        "MP203", KERAS_2,
        "a fixed scale stops the growth: LossScaleOptimizer(optimizer, dynamic=False, initial_scale=2.0**15)",
        "optimizer = {scaled_optimizer}({keras}.optimizers.{inner}(1e-3), dynamic=False, initial_scale=2.0**15)",
        unless=(its.may_be_unscaled,),
    ),
    Row(
        "MP203", TORCH, "a long growth_interval of the GradScaler stops the growth",
        'scaler = torch.amp.GradScaler("cuda", init_scale=2.0**15, growth_interval=10**9)',
        unless=(its.may_be_unscaled,),
    ),
    Row("MP203", WITHOUT_KERAS - TORCH, "a fixed scale stops the growth", unless=(its.may_be_unscaled,)),
    Row(
        "MP204", KERAS, "none needed; a lower initial_scale of the LossScaleOptimizer avoids them",
        "optimizer = {scaled_optimizer}({keras}.optimizers.{inner}(1e-3), initial_scale=2.0**10)",
    ),
    Row(
        "MP204", TORCH, "none needed; a lower init_scale of the GradScaler avoids them",
        'scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)',
    ),
    Row("MP204", WITHOUT_KERAS - TORCH, "none needed; a lower first loss scale avoids them"),
    Row(
        "MP204", KERAS, "start with a lower initial_scale of the LossScaleOptimizer, or train longer",
        "optimizer = {scaled_optimizer}({keras}.optimizers.{inner}(1e-3), initial_scale=2.0**10)", "unsettled",
    ),
    Row(
        "MP204", TORCH, "start with a lower init_scale of the GradScaler, or train longer",
        'scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)', "unsettled",
    ),
    Row("MP204", WITHOUT_KERAS - TORCH, "start with a lower loss scale, or train longer", case="unsettled"),
    Row("MP205", ANY, "none needed"),
    Row(
        "MP205", KERAS, "let the scale grow less often: dynamic_growth_steps=2000 in the LossScaleOptimizer",
        "optimizer = {scaled_optimizer}({keras}.optimizers.{inner}(1e-3), dynamic_growth_steps=2000)", "often",
    ),
    Row(
        "MP205", TORCH, "let the scale grow less often: growth_interval=2000 in the GradScaler",
        'scaler = torch.amp.GradScaler("cuda", growth_interval=2000)', "often",
    ),
    Row("MP205", WITHOUT_KERAS - TORCH, "let the scale grow less often", case="often"),
    *non_finite("MP206"),
    Row(
        "MP206", ANY, "use masks of -3e4 instead of -1e9, epsilons of 1e-4, and float32 for exponentials and long sums",
        when=(its.in_float16,),
    ),
    *(
        Row(row.code, row.on, row.text, row.snippet, when=(its.in_float16,), unless=row.unless)
        for row in in_bfloat16("MP206", "or ")
    ),
    Row("MP206", ANY, "a lower learning rate, or clipped gradients", unless=(its.in_float16,)),
    Row("MP206", ANY, "load a checkpoint that was written before the weights were lost", case="weights"),
    Row(
        "MP206", KERAS, "let a dynamic loss scale skip such steps: {scaled_optimizer}(optimizer)", ADAM_SCALED,
        "weights", when=(its.in_float16,), unless=(its.scales_dynamically,),
    ),
)  # fmt: skip

_WITHOUT_UNITS = tuple(
    row
    for code in ("MP801", "MP802")
    for row in (
        Row(
            code, KERAS, '{set_policy}("float32"), unless the memory saved is what you need',
            '{set_policy}("float32")', unless=(its.in_float32,), other_type=True,
        ),
        Row(
            code, TORCH, "train in float32, without torch.autocast, unless the memory saved is what you need",
            unless=(its.in_float32,), other_type=True,
        ),
        Row(
            code, WITHOUT_KERAS - TORCH, "train in float32, unless the memory that 16 bits save is what you need",
            unless=(its.in_float32,), other_type=True,
        ),
        Row(code, ANY, "none needed: this run is in float32, as it should be here", when=(its.in_float32,)),
    )
)  # fmt: skip
_AUTOCAST = "around the forward pass and the loss"
SWITCH = (
    *(
        Row(
            "mixed precision", on, '{set_policy}("mixed_float16") before the model is built',
            '{set_policy}("mixed_float16")\nmodel = build_model()', unless=unless, other_type=True,
        )
        for on, unless in (
            (KERAS - ON_TENSORFLOW, ()), (KERAS & ON_TENSORFLOW, (its.sums_biases_by_an_op,)),
        )
    ),
    Row(
        "mixed precision", KERAS & ON_TENSORFLOW,
        '{set_policy}("mixed_float16") with jit_compile=True: without XLA, gradients of biases are summed by slow '
        "16-bit atomics",
        '{set_policy}("mixed_float16")\nmodel = build_model()\n' + COMPILE, when=(its.sums_biases_by_an_op,),
        other_type=True,
    ),
    Row(
        "mixed precision", TORCH, f'torch.autocast("cuda", dtype=torch.bfloat16) {_AUTOCAST}',
        'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = loss_fn(model(x), y)',
        unless=(its.lacks_bfloat16,), other_type=True,
    ),
    Row(
        "mixed precision", TORCH, f'torch.autocast("cuda", dtype=torch.float16) {_AUTOCAST}, with a GradScaler',
        'with torch.autocast("cuda", dtype=torch.float16):\n    loss = loss_fn(model(x), y)',
        when=(its.lacks_bfloat16,), unless=(its.only_infers,), other_type=True,
    ),
    Row(
        "mixed precision", TORCH, 'torch.autocast("cuda", dtype=torch.float16) around the forward pass',
        'with torch.autocast("cuda", dtype=torch.float16):\n    y = model(x)',
        when=(its.lacks_bfloat16, its.only_infers), other_type=True,
    ),
    Row(
        "mixed precision", WITHOUT_KERAS - TORCH, "matrix products in bfloat16, weights kept in float32",
        unless=(its.lacks_bfloat16,), other_type=True,
    ),
    Row(
        "mixed precision", WITHOUT_KERAS - TORCH,
        "matrix products in float16 with a loss scale, weights kept in float32",
        when=(its.lacks_bfloat16,), other_type=True,
    ),
)  # fmt: skip
_TRUE_FLOAT32 = "in one baseline run shows the gain over true float32"

CARD = (
    *_WITHOUT_UNITS,
    Row("MP803", ANY, "none needed"),
    Row(
        "MP803", ON_TENSORFLOW, f"tf.config.experimental.enable_tensor_float_32_execution(False) {_TRUE_FLOAT32}",
        "tf.config.experimental.enable_tensor_float_32_execution(False)", vendors=NVIDIA,
    ),
    Row(
        "MP803", ON_JAX, f'jax.config.update("jax_default_matmul_precision", "highest") {_TRUE_FLOAT32}',
        'jax.config.update("jax_default_matmul_precision", "highest")', vendors=NVIDIA,
    ),
    Row(
        "MP803", ON_TORCH, f"torch.backends.cuda.matmul.allow_tf32 = False {_TRUE_FLOAT32}",
        "torch.backends.cuda.matmul.allow_tf32 = False\ntorch.backends.cudnn.allow_tf32 = False", vendors=NVIDIA,
    ),
    Row(
        "MP803", UNKNOWN, f"NVIDIA_TF32_OVERRIDE=0 {_TRUE_FLOAT32}", "NVIDIA_TF32_OVERRIDE=0 python train.py",
        vendors=NVIDIA,
    ),
    Row(
        "MP804", KERAS, '{set_policy}("mixed_float16")', '{set_policy}("mixed_float16")',
        unless=(its.lacks_tensor_cores,), other_type=True,
    ),
    Row(
        "MP804", TORCH, 'torch.autocast("cuda", dtype=torch.float16), with a GradScaler',
        'torch.autocast("cuda", dtype=torch.float16)', unless=(its.lacks_tensor_cores,), other_type=True,
    ),
    Row(
        "MP804", WITHOUT_KERAS - TORCH, "float16 with a loss scale", unless=(its.lacks_tensor_cores,),
        other_type=True,
    ),
    Row(
        "MP804", ANY, "float32: this card has no 16-bit matrix units", when=(its.lacks_tensor_cores,),
        other_type=True,
    ),
    Row("MP805", ANY, "nothing to change: frameworks sum in float32, and the data sheet's rate for that is the limit"),
    Row(
        "MP806", ANY, "train in float32 on this CPU; this run tests the set-up, not the speed", case="cpu"
    ),
    Row(
        "MP806", ANY,
        "compare with float32 on this CPU: bfloat16 pays only with instructions for it (AMX, AVX512-BF16)",
        case="cpu bfloat16",
    ),
    Row("MP806", KERAS, "train in bfloat16, in which a TPU multiplies", '{set_policy}("mixed_bfloat16")', "tpu"),
    Row("MP806", WITHOUT_KERAS, "bfloat16 in place of float16", case="tpu"),
    *(
        Row(
            "MP806", KERAS, f'compare with "{other}": which 16-bit type is fast differs by card and library',
            f'{{set_policy}}("{other}")  # compare the time of a step', "gpu", when=when, unless=unless,
        )
        for other, when, unless in (
            ("mixed_bfloat16", (), (its.in_bfloat16,)), ("mixed_float16", (its.in_bfloat16,), ()),
        )
    ),
    Row(
        "MP806", WITHOUT_KERAS, "compare bfloat16 with float16: which one is fast differs by card and library",
        case="gpu",
    ),
    *(
        Row(
            "MP808", KERAS_3, f'train under "{policy}" alone here, without model.quantize("float8")',
            f'{{set_policy}}("{policy}")\nmodel = build_model()  # without model.quantize("float8")',
            when=when, unless=unless,
        )
        for policy, when, unless in (
            ("mixed_bfloat16", (), (its.lacks_bfloat16, its.in_float16)),
            ("mixed_float16", (its.lacks_bfloat16,), ()),
            ("mixed_float16", (its.in_float16,), (its.lacks_bfloat16,)),
        )
    ),
    Row("MP808", TORCH, "leave the conversion to float8 (torchao, TransformerEngine) out on this card"),
    Row("MP808", ANY - KERAS_3 - TORCH, "multiply in 16 bits on this card, without rounding to float8"),
    Row(
        "MP807", ANY,
        "nvidia-smi -q -d PERFORMANCE shows why clocks fall; cooling, power cap, or locked clocks to compare",
        "nvidia-smi -q -d PERFORMANCE,CLOCK", vendors=NVIDIA,
    ),
    Row(
        "MP807", ANY, "rocm-smi shows clocks, temperature and power; cooling, power cap, or fixed clocks to compare",
        "rocm-smi --showclocks --showtemp --showpower", vendors=AMD,
    ),
    Row(
        "MP807", ANY, "watch the device's clocks, temperature and power; cooling, or a higher power cap",
        vendors=OTHER_VENDORS,
    ),
    Row("MP807", ANY, "see what else runs on this machine, and compare runs made one after the other", case="cpu"),
)  # fmt: skip
