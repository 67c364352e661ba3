"""What a report says, in sentences and rows, before it is laid out.

Text and markdown differ in their layout only: both are made from these. Everything takes the document
(`report.json.document`), so a stored JSON report renders the same as a fresh one.
"""

from mpprof.report.content.breakdown import *
from mpprof.report.content.remedies import *
from mpprof.report.content.run import *
from mpprof.report.content.speedup_lines import *
