"""What to do about a cause."""

from __future__ import annotations

from typing import Annotated

from mpprof.model.frozen import frozen
from mpprof.model.written import LEFT_OUT, NULL


@frozen
class Remedy:
    """One thing to do about a cause. `snippet` "": there is no code to copy."""

    text: str
    snippet: Annotated[str, NULL, "Code to copy, Python or shell."] = ""
    larger_batch: Annotated[
        bool,
        LEFT_OUT,
        "It raises the batch: more examples a second, no shorter step. Left out where not.",
    ] = False
    other_type: Annotated[
        bool,
        LEFT_OUT,
        "It changes the type to compute in. What other remedies gain is known for this run's type only.",
    ] = False
