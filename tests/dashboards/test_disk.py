"""What the page says of where the runs lie: a name, and no path of the server's disk."""

from __future__ import annotations

import os
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import quote

import flask
import pytest
from mpprof_dashboards import create_app
from mpprof_dashboards.disk import WithoutDisk
from mpprof_dashboards.pages import PAGES

from mpprof.api.source import LogDirectory
from tests.dashboards.test_hostile import drawn
from tests.paths import SAMPLES

ROUTES = ("/", "/runs.json", "/run.json", "/report.html", "/report.md")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a cut trace, whose advice is commands, and one that a kill ended: no end is on record."""
    root = tmp_path_factory.mktemp("served") / "it's <é> here"
    shutil.copytree(SAMPLES / "v100-truncated", root / "cut")
    records = SAMPLES / "v100-convnet-mixed-float16" / "mpprof"
    (root / "killed" / "mpprof").mkdir(parents=True)
    shutil.copy(records / "run.json", root / "killed" / "mpprof")
    steps = (records / "steps.jsonl").read_text().splitlines(keepends=True)[:30]
    (root / "killed" / "mpprof" / "steps.jsonl").write_text("".join(steps))
    for file in (root / "killed").rglob("*"):
        os.utime(file, (1.7e9, 1.7e9))  # nothing was written since 2023
    (root / "unreadable").mkdir()
    (root / "unreadable" / "host.xplane.pb").write_bytes(b"no trace")
    return root


def _texts(answer: str) -> tuple[str, str]:
    """An answer as a reader of JSON has it, and as one of HTML."""
    plain = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found.group(1), 16)), answer)
    return plain, unescape(plain)


def test_no_answer_holds_the_path_of_the_served_folder(logs: Path) -> None:
    client = create_app(LogDirectory(logs)).server.test_client()
    said = ""
    for name in ("cut", "killed", "unreadable/host", "nope"):
        query = f"?run={quote(name, safe='')}&baseline=none"
        answers = [drawn(client, page.path, query) for page in PAGES]
        answers += [client.get(path + query).text for path in ROUTES]
        for answer in answers:
            assert not [text for text in _texts(answer) if str(logs.parent) in text]
        said += "".join(_texts(each)[0] for each in answers)
    assert "LOGDIR/cut" in said
    assert "LOGDIR/killed" in said


def test_a_killed_training_says_how_it_ended(logs: Path) -> None:
    client = create_app(LogDirectory(logs)).server.test_client()
    said = drawn(client, "/", "?run=killed&baseline=none")
    assert "mp-state-stopped" in said
    assert "The log does not show the end of the training: it was killed, or still runs." in said


@pytest.mark.parametrize(
    ("logdir", "prefix"), [("/runs", ""), ("/mpprof/runs", "/mpprof"), ("/srv", "/srv/page")]
)
def test_a_path_that_may_be_an_address_of_the_page_is_no_path_of_the_disk(logdir: str, prefix: str) -> None:
    app = flask.Flask("page")
    app.after_request(WithoutDisk(Path(logdir), prefix))
    said = f'<a href="{prefix}/runs">Runs</a><link href="{prefix}/assets/mpprof.css">'
    app.add_url_rule("/", "all", lambda: said)
    assert app.test_client().get("/").text == said


def test_a_folder_whose_name_only_begins_like_it_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    app = create_app(LogDirectory(tmp_path / "logs"))
    shown = {"logs2/x": f"{tmp_path}/logs2/x", "logs/x": "LOGDIR/x", "logs": "LOGDIR"}
    for path in shown:
        app.server.add_url_rule(f"/{path}.txt", path, lambda path=path: f"mpprof report {tmp_path}/{path}")
    client = app.server.test_client()
    for path, told in shown.items():
        assert client.get(f"/{path}.txt").text == f"mpprof report {told}"
