"""What a report says, in sentences and rows, before it is laid out.

Text and markdown differ in their layout only: both are made from these. Everything takes the document
(`report.json.document`), so a stored JSON report renders the same as a fresh one.
"""

from mpprof.diagnosis.after_changes import PAYING_RATIO as PAYING_RATIO
from mpprof.diagnosis.after_changes import Parts as Parts
from mpprof.diagnosis.after_changes import baseline_after as baseline_after
from mpprof.diagnosis.after_changes import left_after as left_after
from mpprof.diagnosis.after_changes import own_ns as own_ns
from mpprof.diagnosis.after_changes import parts_of as parts_of
from mpprof.diagnosis.after_changes import paying as paying
from mpprof.diagnosis.after_changes import positive as positive
from mpprof.report.content.breakdown import *
from mpprof.report.content.remedies import *
from mpprof.report.content.run import *
from mpprof.report.content.speedup_lines import *
