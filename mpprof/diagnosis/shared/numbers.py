"""What a run's looks at the numbers by layer add to a finding: the layer that breaks, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import NotApplicable, known
from mpprof.diagnosis.shared.skips import scale_words
from mpprof.diagnosis.signals import Signals
from mpprof.diagnosis.wording import LONGEST
from mpprof.model.answer import Remedy
from mpprof.model.finding import Evidence
from mpprof.model.frozen import frozen
from mpprof.model.limits import LOWEST_SCALE_EXPONENT
from mpprof.model.run import BROKE, UPDATE, FirstBreak, NumbersLook, Run

FOLLOWS = "forward"
"""The kind of a gradient that is not finite because an output before it is not."""
LOST = "underflow"
WHAT = {"output": "the output", "gradient": "the gradient", "weight_gradient": "the weights' gradient"}


@frozen
class Named:
    """The layer that breaks, for a finding. `words`: a clause that says so; empty: no look shows it.
    `shorter`: the same with less of why, and without. `no_scale_helps`: what is lost is so whatever the loss
    scale. `doublings`: after so many the loss scale is large enough; None: not known, or never."""

    words: str = ""
    shorter: tuple[str, ...] = ()
    tensor: str = ""
    no_scale_helps: bool = False
    doublings: int | None = None
    layers: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    first: tuple[Remedy, ...] = ()

    def after(self, text: str) -> str:
        """Return the text followed by the clause."""
        return _after(text, self.words) if self.words else text

    def said_after(self, text: str) -> str:
        """Return the same for the answer's sentence, which is to name the layer: where that makes it too
        long, with less of why, else with less of the text."""
        shorter = [_after(text, each) for each in self.shorter]
        shorter += [_after(text.partition(": ")[0], each) for each in self.shorter[-1:]]
        return next((each for each in (self.after(text), *shorter) if len(each) < LONGEST), self.after(text))


def _after(text: str, words: str) -> str:
    return f"{text}{';' if ': ' in text else ':'} {words}"


def what_overflows(run: Run) -> Named:
    """Return the first output, else the first gradient, that was not finite in a look; of a gradient that
    follows from the output of a layer, that output."""
    for look in _in_order(run.looks):
        for found in (look.forward, look.backward):
            if found is not None and found.kind not in (LOST, FOLLOWS):
                return _named(found, look)
        if look.forward is not None and look.backward is not None and look.backward.kind == FOLLOWS:
            return _named(look.forward, look)
    return Named()


def what_is_lost(run: Run) -> Named:
    """Return the first output, gradient or update that is 0 in a look and is not in float32."""
    for look in _in_order(run.looks):
        for found in (look.forward, look.backward, look.updates):
            if found is not None and found.kind == LOST:
                return _named(found, look)
    return Named()


def _in_order(looks: Iterable[NumbersLook]) -> list[NumbersLook]:
    return sorted(looks, key=lambda look: look.trigger not in BROKE)


def _named(found: FirstBreak, look: NumbersLook) -> Named:
    what = f"{WHAT.get(found.tensor, 'a tensor')} of {found.layer}"
    shorter: tuple[str, ...] = ()
    if found.kind == "loss scale" and look.high is not None:
        words = f"{what} overflows above a loss scale of {scale_words(look.high)}"
    elif found.tensor == UPDATE:
        words = found.reason
    elif found.kind == LOST and found.tensor == "output":
        share, _, why = found.reason.partition(" of it ")
        because = why.partition(": within it ")[2].partition(";")[0]
        words = f"{share} of {what} is 0" + (f" because {because} within it" if because else "")
    elif found.kind == LOST and found.source is not None:
        words = f"{what} rounds to 0 at every loss scale because the output of {found.source} does"
    elif found.kind == LOST:
        share, _, rounds = found.reason.partition(" of it ")
        words = f"{f'{share} of ' if rounds else ''}{what} rounds to 0"
        words += "" if look.now is None else f" at a loss scale of {scale_words(look.now)}"
    else:
        why = found.reason.partition(";")[0]
        overflows = why.partition(" of values up to ")[0] if why.endswith(" overflows") else why
        brief = (f"{what} is not finite ({overflows} overflows)",) if overflows != why else ()
        words, shorter = f"{what} is not finite ({why})", (*brief, f"{what} is not finite")
    at = "" if look.step is None else f" at step {look.step:,}"
    band: tuple[Evidence, ...] = ()
    if look.banded and look.high is not None and look.low is not None:
        tried_lower = look.low > 2.0**LOWEST_SCALE_EXPONENT
        from_low = f"{scale_words(look.low)} to" if tried_lower else "up to"
        band = (evidence.text("good loss scales", f"{from_low} {scale_words(look.high)}"),)
    elif look.banded and look.high is None:
        band = (evidence.text("good loss scales", "none: the gradients are not finite at any"),)
    told = (evidence.text(f"first to break{at}", f"{what}: {found.reason}"), *band)
    if found.tensor == UPDATE:
        told = (evidence.text(f"lost{at}", found.reason),)
    hopeless = found.kind == LOST and (found.tensor in ("output", UPDATE) or found.source is not None)
    named = Named(words, shorter, found.tensor, hopeless, _doublings(look), (found.layer,), told)
    if found.advice is None:
        return named
    said = found.advice.rstrip(".")
    said = said if said.startswith(found.layer) else said[:1].lower() + said[1:]
    return replace(named, first=(Remedy(said, found.snippet or ""),))


def _doublings(look: NumbersLook) -> int | None:
    if look.low is None or not look.now or look.now >= look.low:
        return None
    return math.ceil(math.log2(look.low / look.now))


# --- Whether a training step of the user's own scales its loss, which the optimizer then un-scales.

NEVER_SCALED = NotApplicable("the loss is never scaled, so that its scale says nothing (MP103)")


def scale_loss_called(signals: Signals) -> bool | None:
    """Return whether the optimizer's `scale_loss` was seen to be called; None: not known."""
    fit = known(signals.fit)
    return fit.scale_loss_called if fit is not None else None


def never_scaled(signals: Signals) -> bool:
    """Return whether the optimizer un-scales gradients of a loss that is known never to be scaled."""
    optimizer = known(signals.optimizer)
    un_scales = optimizer is not None and bool(optimizer.inner or optimizer.dynamic or optimizer.fixed_scale)
    return un_scales and scale_loss_called(signals) is False and known(signals.compute_dtype) == "float16"
