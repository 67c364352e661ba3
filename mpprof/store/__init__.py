"""The shelf: the files of a run, their versions, writing them safely and reading them back.

find_runs(path)      the runs at or below a path
read_records(root)   one run's facts, step log, validations and hardware samples
"""

from mpprof.store.find import find_runs
from mpprof.store.records import Records, read_records

__all__ = ["Records", "find_runs", "read_records"]
