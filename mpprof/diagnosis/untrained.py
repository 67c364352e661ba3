"""A model before it trains, as the rules look at it: its layers, the `fit` it is to have, the card.

Before a training there are no kernels: sizes and kinds of layers are named as what they are, a risk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mpprof.analysis.layers import flops, kinds
from mpprof.diagnosis.remedies.layer_code import Write, in_place, innermost, placed, wrapper_of, written
from mpprof.diagnosis.signals import HALF_DTYPES, Signals
from mpprof.model.device import DeviceFacts
from mpprof.model.finding import Finding, Severity
from mpprof.model.frozen import frozen
from mpprof.model.run import FitFacts, LayerFacts, ModelFacts, RunFacts


@frozen
class Note:
    """What a rule says of a model before it trains: an `AuditNote` without the rule's code and name. `title`
    empty: the rule's own."""

    severity: Severity
    layer: str | None
    reason: str
    remedy: str
    title: str = ""
    about: str | None = None


@frozen
class Untrained:
    """A model and the `fit` it is to have.

    `facts` has no layers where the walk over the model failed. `gpu` None: any card with Tensor Cores.
    `shares`: layers' parts of the model's multiplications, 0 to 1; empty where not known. `found`: by code,
    what the rules found that judge on records alone (`ON_RECORDS`).
    """

    signals: Signals
    run: RunFacts
    facts: ModelFacts
    fit: FitFacts | None
    gpu: DeviceFacts | None
    shares: Mapping[str, float]
    found: Mapping[str, Finding]

    @property
    def layers(self) -> Sequence[LayerFacts]:
        return self.facts.layers

    @property
    def half(self) -> tuple[LayerFacts, ...]:
        """Layers that compute in 16 bits; of a model without any, those that would under a mixed policy. The
        cell that a recurrent layer made is left out: it is the layer over again."""
        by_name = {f.name: f for f in self.layers}
        layers = tuple(f for f in self.layers if not flops.repeats(f, by_name))
        return tuple(f for f in layers if f.compute_dtype in HALF_DTYPES) or layers

    def computing_in(self, *dtypes: str) -> list[LayerFacts]:
        """Return the layers that multiply in one of these types, each by its own policy."""
        return [
            f for f in self.layers if kinds.is_matrix(f) and f.parameters != 0 and f.compute_dtype in dtypes
        ]

    @property
    def feeding_outputs(self) -> frozenset[str]:
        """The layers that multiply last before an output: their sizes are what the labels have. By the graph,
        else the last such layer."""
        if not self.facts.outputs or all(layer.inbound is None for layer in self.layers):
            return self.ends
        by_name = {layer.name: layer for layer in self.layers}
        waiting, found = [each.layer for each in self.facts.outputs], set[str]()
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            layer = by_name.get(name)
            if layer is not None and not kinds.is_matrix(layer) and not layer.parameters:
                waiting += layer.inbound or ()
        return self.ends | found

    @property
    def keras(self) -> str:
        """The name that the model's Keras is imported by."""
        return str(self.signals.words["keras"])

    @property
    def policy(self) -> str | None:
        return self.fit.policy.own if self.fit else None

    @property
    def on_tensorflow(self) -> bool:
        return self.run.framework.get("backend") in (None, "tensorflow")

    def placed(self, layer: LayerFacts, write: Write) -> tuple[str, str]:
        """Return (name, code) of what stands in the model's script for this layer."""
        return placed(self.layers, layer, write)

    def changed(self, layer: LayerFacts, **changes: Any) -> tuple[str, str]:
        """Return (name, code) of the layer with these arguments, in its place."""
        return self.placed(layer, lambda one: in_place(one, self.policy, **changes))

    def is_masked(self, layer: LayerFacts) -> bool:
        outer = wrapper_of(self.layers, layer)
        return bool(layer.masked or (outer is not None and outer.masked))

    def input_shape(self, layer: LayerFacts) -> object:
        """Return the layer's own input shape, or that of the wrapper that hands its input on."""
        by_name = {f.name: f for f in self.layers}
        at: LayerFacts | None = layer
        while at is not None and at.input_shape is None and at.kind != "StackedRNNCells":
            outer = flops.parent(at, by_name)
            at = outer if outer is not None and kinds.is_wrapper(outer) else None
        return at.input_shape if at is not None else None

    def snippet(self, cause: str, case: str = "") -> str:
        """Return the code of the table's first remedy of a cause; empty where it has none."""
        return next((each.snippet for each in self.signals.remedies(cause, (case,)) if each.snippet), "")

    # --- what the rules found on records alone ---

    def found_in(self, code: str) -> Iterator[tuple[Finding, str | None, LayerFacts | None]]:
        """Yield (finding, name, layer) for each layer that the finding names; nothing without a finding.

        `layer` is None where it was not recorded, `name` as well where the finding names none."""
        found = self.found.get(code)
        if found is None:
            return
        by_name = {layer.name: layer for layer in self.layers}
        for name in dict.fromkeys(found.layers):
            yield found, name, by_name.get(name)
        if not found.layers:
            yield found, None, None

    def note(
        self,
        found: Finding,
        name: str | None = None,
        layer: LayerFacts | None = None,
        reason: str = "",
        remedy: str = "",
    ) -> Note:
        """Return a finding under the name of what stands in the model's script. `reason` and `remedy` are the
        finding's own where none is given."""
        own = next((each.snippet for each in found.remedies if each.snippet), found.remedy)
        outermost = self.placed(layer, written)[0] if layer is not None else name
        return Note(found.severity, outermost, reason or found.summary, remedy or own, found.title)

    # --- code for layers that should compute in 16 bits ---

    @property
    def ends(self) -> frozenset[str]:
        """The layers at the model's end, and those that give its outputs."""
        return kinds.head(self.layers) | {each.layer for each in self.facts.outputs}

    @property
    def half_policy(self) -> str | None:
        """The policy of the layers that compute in 16 bits."""
        half = next((f for f in self.layers if f.compute_dtype in HALF_DTYPES), None)
        return half.dtype_policy if half else None

    def in_half(self, layer: LayerFacts, drop: Iterable[str] = (), **changes: Any) -> str:
        """Return the layer's code with the policy of those that compute in 16 bits."""
        policy = self.half_policy
        if policy and policy != self.policy:
            changes["dtype"] = policy
        return written(layer, drop, **changes)

    def ending_in_float32(self, layer: LayerFacts, write: Write) -> str:
        """Return code with the product in 16 bits and the activation, which rounding harms, in float32."""
        layer, activation = innermost(self.layers, layer), "'linear'"
        if layer.kind in _ACTIVATED_LAST and layer.arguments.get("activation", "...") != "...":
            activation = layer.arguments["activation"]
            kept = {key: text for key, text in layer.arguments.items() if key != "activation"}
            layer = replace(layer, arguments=kept)
        code = self.placed(layer, write)[1]
        return f'x = {code}(x)\noutputs = {self.keras}.layers.Activation({activation}, dtype="float32")(x)'


_ACTIVATED_LAST = frozenset((
    "Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose",
    "Conv3DTranspose", "SeparableConv1D", "SeparableConv2D", "DepthwiseConv1D", "DepthwiseConv2D",
))  # fmt: skip
