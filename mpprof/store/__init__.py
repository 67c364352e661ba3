"""The shelf: the files of a run, their versions, writing them safely and reading them back.

find_runs(path)      the runs at or below a path
further_workers(root) the workers of a run beside the first
read_records(root)   one run's facts, step log, validations and hardware samples
read_counters(root)  what hardware counters said of its kernels; write_counters adds to it
"""

from mpprof.store.counters import read_counters, write_counters
from mpprof.store.find import find_runs, further_workers
from mpprof.store.records import Records, read_records

__all__ = ["Records", "find_runs", "further_workers", "read_counters", "read_records", "write_counters"]
