"""mpprof: why mixed precision did not give the speedup it promised, and what would.

    from mpprof import MPProfilerCallback
    model.fit(data, callbacks=[MPProfilerCallback("logs/run1")])

Then `mpprof report logs/run1` or `mpprof serve logs/`. Importing this package imports no framework and
no Dash: every public name is resolved when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpprof import errors as errors
from mpprof._version import __version__

if TYPE_CHECKING:
    from mpprof.api.auditing import audit
    from mpprof.api.public import compare, diagnose, forecast, load
    from mpprof.api.results import Comparison, Diagnosis, Run, Table
    from mpprof.api.survey import survey
    from mpprof.forecasts.memory.forecasting import forecast_memory
    from mpprof.numbers.look import numerics
    from mpprof.record import MlflowSink, MPProfilerCallback, StepRecorder, WandbSink
    from mpprof.trial.inline import try_settings

_LAZY = {
    "MPProfilerCallback": "mpprof.record",
    "MlflowSink": "mpprof.record",
    "StepRecorder": "mpprof.record",
    "WandbSink": "mpprof.record",
    "audit": "mpprof.api.auditing",
    "forecast": "mpprof.api.public",
    "forecast_memory": "mpprof.forecasts.memory.forecasting",
    "Comparison": "mpprof.api.results",
    "Diagnosis": "mpprof.api.results",
    "Run": "mpprof.api.results",
    "Table": "mpprof.api.results",
    "compare": "mpprof.api.public",
    "diagnose": "mpprof.api.public",
    "load": "mpprof.api.public",
    "numerics": "mpprof.numbers.look",
    "survey": "mpprof.api.survey",
    "try_settings": "mpprof.trial.inline",
}

__all__ = [
    "Comparison",
    "Diagnosis",
    "MPProfilerCallback",
    "MlflowSink",
    "Run",
    "StepRecorder",
    "Table",
    "WandbSink",
    "__version__",
    "audit",
    "compare",
    "diagnose",
    "forecast",
    "forecast_memory",
    "load",
    "numerics",
    "survey",
    "try_settings",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'mpprof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({"errors", *(name for name in globals() if name.startswith("__")), *__all__})
