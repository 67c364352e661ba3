"""The judgement: from what is known of a run to findings, what is clear, and what cannot be told.

judgement = judge(Case(run=run, account=account, ...))
page = explain("float32-island")
"""

from mpprof.diagnosis.engine import Judgement, judge
from mpprof.diagnosis.manual import codes, explain
from mpprof.diagnosis.signals import Case

__all__ = ["Case", "Judgement", "codes", "explain", "judge"]
