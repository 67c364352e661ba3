"""Write `assignments.json`, XLA's buffer assignments that forecasts of activations are held to:
`python -m tests.forecasts.memory.make_assignments`.

Needs the extra mpprof[forecast]; no GPU. It holds each model as a run would record it, in float32, and for each
card and policy the bytes of temporaries, parameters and optimizer variables of the compiled train step. A case
that XLA does not compile stands with its reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.forecasts.memory.models import BATCH

FILE = Path(__file__).with_name("assignments.json")
CARDS = ("v100", "a100", "h100")
POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
_LAYER = (
    "name", "class", "base", "module", "compute_dtype", "variable_dtype", "output_dtype", "dtype_policy", "config",
    "input_shape", "output_shape", "parameters", "trainable", "inbound", "takes",
)  # fmt: skip
"""What of a layer's record the forecast looks at."""


def described(name: str) -> dict[str, Any]:
    """The model and its fit as run.json has them."""
    import keras

    from mpprof.record.facts.fit import fit_facts
    from mpprof.record.facts.layers import model_facts
    from mpprof.store import formats
    from tests.forecasts.memory import models

    keras.backend.clear_session()
    keras.config.set_dtype_policy("float32")
    model = getattr(models, name)()
    facts: dict[str, Any] = formats.plain(model_facts(model))
    facts["layers"] = [{key: one[key] for key in _LAYER if key in one} for one in facts["layers"]]
    fit = formats.plain(fit_facts(model, 1, 1, None, BATCH[name]))
    return {"model": facts, "fits": [fit], "framework": {"backend": keras.backend.backend()}}


def assignment(name: str, card: str, policy: str) -> dict[str, Any]:
    """What XLA assigned, of each of the two programs; or why there is none."""
    from mpprof.errors import UnableError
    from mpprof.forecasts import compiling, targets

    case = {"model": name, "card": card, "policy": policy}
    source = f"tests.forecasts.memory.models:{name}"
    try:
        found = compiling.compiled(source, targets.card(card), policy, BATCH[name]).result
    except UnableError as error:
        return {**case, "not_compiled": error.what}
    return {**case, **numbers(found)}


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a compiled program's result."""
    return {
        "temporaries_bytes": [one["temporaries_bytes"] for one in result["programs"].values()],
        "parameters_bytes": result["parameters_bytes"],
        "slots_bytes": result["slots_bytes"],
        "versions": result["versions"],
    }


def write(models: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    lines = [f"  {json.dumps(one)}" for one in cases]
    facts = [f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in models.items()]
    FILE.write_text(
        '{"models": {\n' + ",\n".join(facts) + '\n}, "assignments": [\n' + ",\n".join(lines) + "\n]}\n"
    )


def main() -> None:
    cases = [assignment(name, card, policy) for name in BATCH for card in CARDS for policy in POLICIES]
    write({name: described(name) for name in BATCH}, cases)


if __name__ == "__main__":
    main()
