"""What the records alone say of memory: the allocator at steps, the driver and the process over time."""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.model.memory import RecordedMemory
from mpprof.model.run import Run


def recorded(run: Run, steady_peak_bytes: int | None) -> RecordedMemory | None:
    """Return the run's own readings; None where nothing of them was recorded."""
    steps, hardware = run.steps, run.hardware
    peak = steps.peak_bytes[steps.peak_bytes >= 0] if steps is not None else np.empty(0, np.int64)
    live = steps.live_bytes[steps.live_bytes >= 0] if steps is not None else np.empty(0, np.int64)
    used = hardware.memory_used_bytes if hardware is not None else np.empty(0)
    host = hardware.rss_bytes if hardware is not None else np.empty(0)
    used, host = used[np.isfinite(used)], host[np.isfinite(host)]
    if not (len(peak) or len(live) or len(used) or len(host)):
        return None
    return RecordedMemory(
        peak_bytes=int(peak.max()) if len(peak) else None,
        steady_peak_bytes=steady_peak_bytes,
        first_live_bytes=int(live[0]) if len(live) else None,
        last_live_bytes=int(live[-1]) if len(live) else None,
        driver_bytes=int(median(used)) if len(used) else None,
        host_bytes=int(host.max()) if len(host) else None,
    )
