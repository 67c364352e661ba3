"""Traces of other tools, read as `model.trace.Trace`.

find_traces(path)     the trace files of a directory, the one to read last
traces_in(folder)     the same of a directory that may be gone
read(path)            one trace file, whatever its format and state
reader_of(name, head) the reader of a file, by its first bytes or its name
choice(...)           which of several files is read, and which are skipped
hosts_beside(path)    the traces of the other hosts of a session
is_slow(path)         whether the file is worth caching; version() changes with the code that reads
"""

from mpprof.traces.common.file_head import Reader
from mpprof.traces.find import choice, find_traces, hosts_beside, is_session, traces_in
from mpprof.traces.readers import READERS, is_slow, read, reader_of, version

__all__ = [
    "READERS",
    "Reader",
    "choice",
    "find_traces",
    "hosts_beside",
    "is_session",
    "is_slow",
    "read",
    "reader_of",
    "traces_in",
    "version",
]
