"""Remedies that several causes share: rows made for each of them, and groups of frameworks and cards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

from mpprof.diagnosis.remedies import conditions as its
from mpprof.diagnosis.remedies.conditions import Condition
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
    Framework,
)
from mpprof.model.device import Vendor
from mpprof.model.frozen import frozen

if TYPE_CHECKING:
    from mpprof.diagnosis.signals import Signals


ANY_VENDOR: frozenset[Vendor] = frozenset(get_args(Vendor))


@frozen
class Row:
    """One remedy of one cause, and the runs it is for.

    `code` is a cause's, or names what is to be recorded ("record run"); `case` tells apart a cause's several
    ways to be found. Values in braces are filled in. `snippet` is code to copy, Python or shell. `loop`: the
    remedy is about the training loop, so that in a loop of the user's own the framework below Keras counts.
    `where`: which case that is, in words, for the manual page, which shows all cases. `larger_batch`,
    `other_type`: as of `model.answer.Remedy`.
    """

    code: str
    on: frozenset[Framework]
    text: str
    snippet: str = ""
    case: str = ""
    vendors: frozenset[Vendor] = ANY_VENDOR
    when: tuple[Condition, ...] = ()
    unless: tuple[Condition, ...] = ()
    loop: bool = False
    larger_batch: bool = False
    other_type: bool = False
    where: str = ""

    def fits(self, signals: Signals, case: str) -> bool:
        """Tell whether this row is for such a run."""
        framework = signals.loop_framework if self.loop else signals.framework
        if self.case != case or framework not in self.on or signals.vendor not in self.vendors:
            return False
        for condition in self.when:
            if not condition(signals):
                return False
        for condition in self.unless:  # noqa: SIM110
            if condition(signals):
                return False
        return True


NVIDIA: frozenset[Vendor] = frozenset({"nvidia"})
AMD: frozenset[Vendor] = frozenset({"amd"})
NOT_NVIDIA: frozenset[Vendor] = ANY_VENDOR - NVIDIA
OTHER_VENDORS: frozenset[Vendor] = ANY_VENDOR - NVIDIA - AMD
KERAS_ON_TENSORFLOW: frozenset[Framework] = frozenset({"keras on tensorflow"})
KERAS_ON_JAX: frozenset[Framework] = frozenset({"keras on jax"})
KERAS_ON_TORCH: frozenset[Framework] = frozenset({"keras on torch"})

WITHOUT_FLOAT8 = 'model.quantize("float8", filters=lambda layer: layer.name not in {names})'
"""Keras gives the filter a layer without the path to it: `without_float8` fills in such names."""
COMPILE = "model.compile(optimizer=model.optimizer, loss=model.loss, jit_compile=True)"
SCALED = (
    "optimizer = {scaled_optimizer}(model.optimizer)\nmodel.compile(optimizer=optimizer, loss=model.loss)"
)
ADAM_SCALED = "optimizer = {scaled_optimizer}({keras}.optimizers.{inner}(1e-3))"


def fused(code: str, what: str = "", case: str = "") -> tuple[Row, ...]:
    """Return a compiler that fuses kernels, by framework; `what` it does to this cause."""
    rows = (
        (KERAS, "jit_compile=True", COMPILE, (), (its.compiled,)),
        (
            TENSORFLOW, "@tf.function(jit_compile=True) on the step",
            "train_step = tf.function(train_step, jit_compile=True)", (), (its.compiled,),
        ),
        (TORCH, "torch.compile(model)", "model = torch.compile(model)", (), (its.compiled,)),
        (JAX, "one jax.jit around the whole step", "train_step = jax.jit(train_step)", (its.eager_jax,), ()),
    )  # fmt: skip
    return tuple(
        Row(code, on, f"{how} {what}".rstrip(), snippet, case, when=when, unless=unless, loop=True)
        for on, how, snippet, when, unless in rows
    )


def own_names(layers: Iterable[str]) -> tuple[str, ...]:
    """Return what Keras calls these layers, which are given as paths ("encoder/dense_1"), each once."""
    return tuple(dict.fromkeys(name.rpartition("/")[2] for name in layers))


def without_float8(layers: Iterable[str]) -> str:
    """Return the code that leaves these layers out of float8."""
    return WITHOUT_FLOAT8.replace("{names}", repr(own_names(layers)))


def in_bfloat16(code: str, start: str = "") -> tuple[Row, ...]:
    """Return bfloat16 in place of float16; `start` joins it with the remedy before."""
    rows = (
        (KERAS, "mixed_bfloat16", '{set_policy}("mixed_bfloat16")'),
        (TORCH, "bfloat16", 'torch.autocast("cuda", dtype=torch.bfloat16)'),
        (WITHOUT_KERAS - TORCH, "bfloat16", ""),
    )
    return tuple(
        Row(code, on, f"{start}{name} where the device has it", snippet, unless=(its.lacks_bfloat16,))
        for on, name, snippet in rows
    )


_OP_BY_OP = "\n".join(
    f'jax.config.update("{name}", True)' for name in ("jax_disable_jit", "jax_debug_infs", "jax_debug_nans")
)
"""JAX looks at what a compiled step gives out, where a loss scale has replaced what is not finite."""


def non_finite(code: str) -> tuple[Row, ...]:
    """Return what names the op that gives the first value that is not finite."""
    found = "find the first value that is not finite"
    named = tuple(
        Row(code, on, f"{found} with {how}", snippet or how, loop=True)
        for on, how, snippet in (
            (ON_TENSORFLOW, "tf.debugging.enable_check_numerics()", ""),
            (ON_JAX, "jax_debug_infs and jax_debug_nans, op by op", _OP_BY_OP),
            (ON_TORCH, "torch.autograd.set_detect_anomaly(True)", ""),
        )
    )
    return (*named, Row(code, UNKNOWN, found, loop=True))


def float32_for(code: str, keras: str, snippet: str, other: str) -> tuple[Row, ...]:
    """Return float32 for a part of a model in 16 bits; nothing in a run that is float32 as a whole."""
    unless = (its.in_float32,)
    return (
        Row(code, KERAS, keras, snippet, unless=unless),
        Row(
            code, TORCH, f'torch.autocast("cuda", enabled=False) around {other}',
            'with torch.autocast("cuda", enabled=False):\n    x = layer(x.float())', unless=unless,
        ),
        Row(code, WITHOUT_KERAS - TORCH, f"float32 for {other}", unless=unless),
    )  # fmt: skip


def newer_library(code: str) -> tuple[Row, ...]:
    """Return a newer library of convolutions, by the card."""
    return (
        Row(code, ANY, "a newer cuDNN", vendors=NVIDIA),
        Row(code, ANY, "a newer MIOpen", vendors=AMD),
    )
