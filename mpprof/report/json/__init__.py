"""The report as a JSON document: schemas `mpprof.report/1` and `mpprof.compare/1`.

Text, markdown, HTML and the dashboard are all made from these documents, so whatever a person reads can
be read by a program too. Numbers are raw, in the unit that ends their name. What is not known is null,
with its reason in `absent` (a nested field by its path: "steps.skipped"). The documents are strict JSON:
non-finite numbers are the strings "NaN", "Infinity" and "-Infinity".

`model.document` holds the types of both; `report.schema.json` and `compare.schema.json` are made from them.
"""

from mpprof.report.json.comparison import compare_document
from mpprof.report.json.memory import memory_items, out_of_memory
from mpprof.report.json.report import accelerators_first, device_name, document
from mpprof.report.json.values import dumps, schema

__all__ = [
    "accelerators_first",
    "compare_document",
    "device_name",
    "document",
    "dumps",
    "memory_items",
    "out_of_memory",
    "schema",
]
