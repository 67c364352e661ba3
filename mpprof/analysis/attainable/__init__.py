"""What a piece of a step could take at best in another precision: one engine for all that asks.

`engine.least(work, precision, evidence)` gives three times and where they come from: `low`, that physics or
the card's peaks allow; `likely`, what kernels of this kind reach; `high`, at which it stays where nothing
helps. The expected speedup, the range of a run that nobody compared, the estimate of an unrecorded baseline
and the gains of rules are sums of these. `work` holds the constants and the roofline, `calibration` what was
measured elsewhere, `evidence` what this very trace shows, and which of its kernels are no evidence.
"""
