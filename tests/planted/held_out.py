"""Random planted cases: the judge of the rules, because no rule was written against any one of them.

A seed gives a training of a random kind, size, card and noise, on kernels of random efficiency and
under random names of layers. One, two or three causes are planted in it, each of which takes a noticeable part
of the step. The truth of a cause is the step less that of the same training with only the others in it.
Nothing here imports mpprof.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.builders.simulate import Training
from tests.planted import generator
from tests.planted.generator import Planted
from tests.planted.random_causes import RECORDED, TIMED
from tests.planted.random_training import Cause, Kind, Spec, baseline, healthy, training

LEAST_RATIO, MOST_RATIO = 0.12, 0.75
"""A cause takes so much of the step: several rules are silent up to a tenth."""
LEAST_OF = {"MP302": 0.2, "MP304": 0.2, "MP503": 0.2, "MP504": 0.35, "MP505": 0.15}
"""Every healthy run has some launching, un-scaling, casting and updating: only more than that is planted."""
TRIES, TRIES_OF_A_KIND = 60, 12
_AROUND_THE_STEP = {"MP301", "MP305"}


def case(seed: int) -> Planted:
    """The random case of this seed: kinds of causes first, and then a training that has room for them."""
    rng = random.Random(f"held out {seed}")
    for _ in range(TRIES):
        kinds = [rng.choice(TIMED) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        if len(kinds) > 1 and rng.random() < 0.2:
            kinds[-1] = rng.choice(RECORDED)
        for _ in range(TRIES_OF_A_KIND):
            found = _attempt(rng, seed, kinds)
            if found is not None:
                return found
    raise AssertionError(f"seed {seed}: no case in {TRIES} tries")


def _attempt(rng: random.Random, seed: int, kinds: Sequence[Kind]) -> Planted | None:
    spec = healthy(rng, seed)
    chosen: list[Cause] = []
    for kind in kinds:
        cause = kind(rng, spec)
        if cause is None or any(_collide(cause, other, spec) for other in chosen):
            return None
        chosen.append(cause)
    full = replace(spec, causes=tuple(chosen))
    planted = training(full)
    twins = {cause.code: training(full, cured=cause.code) if cause.costs else None for cause in chosen}
    step = generator.step_ns(planted)
    costs = {code: step - generator.step_ns(twin) for code, twin in twins.items() if twin is not None}
    if any(not _least(code) * step < cost < MOST_RATIO * step for code, cost in costs.items()):
        return None
    compared = baseline(full) if rng.random() < 0.8 else None
    return Planted(planted.name, planted, twins, compared, unseen=True)


def _least(code: str) -> float:
    return LEAST_OF.get(code, LEAST_RATIO)


def _collide(one: Cause, other: Cause, spec: Spec) -> bool:
    """There would be no one truth for both: the same cause twice or in the same layer, or launches that hide
    behind the longer kernels of the other."""
    if one.code == other.code:
        return True
    for first, second in ((one, other), (other, one)):
        if first.code == "MP302" and second.costs and second.code not in _AROUND_THE_STEP:
            return True
    return bool(set(one.plant(spec).overrides) & set(other.plant(spec).overrides))


def clean(seed: int) -> tuple[Training, Training | None]:
    """A healthy training of this seed, and its float32 run for most seeds."""
    rng = random.Random(f"clean {seed}")
    spec = healthy(rng, seed)
    return training(spec), baseline(spec) if rng.random() < 0.8 else None
