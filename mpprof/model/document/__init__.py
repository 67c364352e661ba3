"""The types of the JSON documents `mpprof.report/1` and `mpprof.compare/1`, and of the tables' rows.

`report.schema` generates both JSON Schemas from these types. A string in `Annotated` is a key's description
there, a pair a keyword of the schema. Keys that were added after version 0.1 are `NotRequired`. A report
imports none of them when it runs: only type checkers, `report.schema` and surveys do.
"""

from mpprof.model.document.rows import *
from mpprof.model.document.timeline import *
from mpprof.model.document.values import *
