"""A trace that is named is read for what it is, whatever it is called."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from mpprof import traces
from mpprof.api import workflows
from mpprof.cli import main
from mpprof.errors import UnreadableError
from mpprof.traces import readers
from mpprof.traces.common import file_head
from mpprof.traces.xspace.reader import XSpaceReader
from tests.paths import SAMPLES
from tests.traces.kineto import small
from tests.traces.test_chrome import tensorflow_text
from tests.traces.test_nsys import export

XPLANE = next((SAMPLES / "v100-convnet-mixed-float16").rglob("*.xplane.pb"))


def _xplane(path: Path) -> None:
    path.write_bytes(XPLANE.read_bytes())


def _packed_xplane(path: Path) -> None:
    path.write_bytes(gzip.compress(XPLANE.read_bytes(), 1))


def _kineto(path: Path) -> None:
    path.write_bytes(small().text())


def _packed_kineto(path: Path) -> None:
    path.write_bytes(gzip.compress(small().text()))


def _tensorflow(path: Path) -> None:
    path.write_bytes(tensorflow_text())


WRITERS = {
    "xspace": (_xplane, _packed_xplane),
    "chrome": (_kineto, _packed_kineto, _tensorflow),
    "nsys": (export,),
}


@pytest.mark.parametrize(
    "name", ["trace", "trace.bin", "window 3.pb.bak", "a.json", "a.xplane.pb", "a.sqlite"]
)
@pytest.mark.parametrize(
    ("format", "write"), [(format, write) for format, writers in WRITERS.items() for write in writers]
)
def test_the_bytes_say_what_a_file_is(
    tmp_path: Path, format: str, write: Callable[[Path], None], name: str
) -> None:
    write(tmp_path / name)
    trace = traces.read(tmp_path / name)
    assert trace.source.format == format
    assert len(trace.kernels) > 0
    assert not trace.warnings
    assert workflows.load(tmp_path / name).traces == (tmp_path / name,)


def test_a_name_is_first_of_the_reader_whose_kind_ends_so() -> None:
    """A reader with a longer end than `.json`, which Chrome traces claim, needs no place before theirs."""
    kinds = (file_head.Kind("ops", ends=(".ops.json",)),)
    own = type("Own", (file_head.Reader,), {"kinds": kinds})()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(readers, "READERS", (*readers.READERS, own))
        assert readers.claimed("host.ops.json") is own
        assert type(readers.claimed("host.json")).__name__ == "ChromeReader"


def test_each_recorded_xplane_is_known_by_its_bytes(tmp_path: Path) -> None:
    for path in SAMPLES.rglob("*.xplane.pb"):
        assert isinstance(traces.reader_of("unnamed", file_head.of(path)), XSpaceReader)


@pytest.mark.parametrize(
    "content",
    [
        b"hello", b"\n\nhello", b'{"rows": [1]}', gzip.compress(b"text", mtime=0), gzip.compress(b"text", mtime=0)[:12], b"\x0a\x05",
        b"\x0a\x10\x0a\x05/host", b"\x0a\x10\x12\x05\xff\xff\xff\xff\xff",
    ],
)  # fmt: skip
def test_other_files_of_any_name_are_refused_in_one_line(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UnreadableError, match="unrecognised trace format"):
        traces.read(tmp_path / "file")
    assert main(["report", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("module", "name"), [(bz2, "bzip2"), (lzma, "xz")])
def test_another_way_of_packing_is_named(tmp_path: Path, module: ModuleType, name: str) -> None:
    path = tmp_path / "host.xplane.pb.packed"
    path.write_bytes(module.compress(XPLANE.read_bytes()))
    with pytest.raises(UnreadableError, match=f"is packed with {name}, not with gzip. Unpack it"):
        traces.read(path)


def test_a_bundle_is_known_by_its_bytes_and_a_trace_named_like_one_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", str(XPLANE), "-o", str(tmp_path / "bundle")]) == 0
    _xplane(tmp_path / "trace.zip")
    capsys.readouterr()
    tables = []
    for path in (XPLANE, tmp_path / "bundle", tmp_path / "trace.zip"):
        assert main(["kernels", str(path), "--format", "csv"]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1] == tables[2] != ""
    (tmp_path / "broken.zip").write_bytes((tmp_path / "bundle").read_bytes()[:-30])
    (tmp_path / "text.zip").write_bytes(b"text")
    for name in ("broken.zip", "text.zip"):
        assert main(["report", str(tmp_path / name)]) == 2
        assert "damaged zip file" in capsys.readouterr().err


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("pipe", "pipe.zip", "pipe.xplane.pb"):
        os.mkfifo(tmp_path / name)
        assert main(["report", str(tmp_path / name)]) == 2


def test_what_is_slow_to_read_is_kept_under_any_name(tmp_path: Path) -> None:
    def grown(write: Callable[[Path], object], size: int) -> bool:
        path = tmp_path / "file"
        write(path)
        with path.open("ab") as file:
            file.truncate(size)
        return traces.is_slow(path)

    assert grown(_packed_kineto, 1 << 20)
    assert not grown(_packed_kineto, (1 << 20) - 1)
    assert not grown(_kineto, 1 << 20)
    assert grown(_kineto, 16 << 20)
    assert not grown(_xplane, 16 << 20)
    assert not grown(_packed_xplane, 16 << 20)
    (tmp_path / "file").unlink()
    assert grown(export, 4 << 20)
