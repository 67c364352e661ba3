"""The rules: one file per cause, its docstring is its manual page.

Adding a cause: one file here, one line in `ALL`, one test.
"""

from __future__ import annotations

from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.rules import (
    mp101_built_before_policy,
    mp102_no_loss_scaling,
    mp104_float32_island,
    mp106_float16_output,
    mp201_endless_skips,
    mp203_loss_scale_runaway,
    mp204_startup_skips,
    mp301_input_bound,
    mp302_launch_bound,
    mp401_unaligned_shape,
    mp503_casts,
    mp801_no_tensor_cores,
    mp802_gtx16_no_tensor_cores,
    mp803_tf32_baseline,
    mp806_other_vendor,
    mp901_warm_up,
    mp905_profiler_overhead,
    mp906_unlike_runs,
    mp907_unknown_kernels,
    mp908_no_device_events,
    mp909_dropped_events,
    mp910_no_window,
    mp911_too_short,
    mp912_attribution_lost,
)

ALL: tuple[Rule, ...] = (
    mp101_built_before_policy,
    mp102_no_loss_scaling,
    mp104_float32_island,
    mp106_float16_output,
    mp201_endless_skips,
    mp203_loss_scale_runaway,
    mp204_startup_skips,
    mp301_input_bound,
    mp302_launch_bound,
    mp401_unaligned_shape,
    mp503_casts,
    mp801_no_tensor_cores,
    mp802_gtx16_no_tensor_cores,
    mp803_tf32_baseline,
    mp806_other_vendor,
    mp901_warm_up,
    mp905_profiler_overhead,
    mp906_unlike_runs,
    mp907_unknown_kernels,
    mp908_no_device_events,
    mp909_dropped_events,
    mp910_no_window,
    mp911_too_short,
    mp912_attribution_lost,
)
"""Every rule, by code. The engine's result does not depend on the order."""
