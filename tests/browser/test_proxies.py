"""Behind a real nginx, jupyter-server-proxy and in a notebook's frame, in a real chromium.

They are not part of the project: `apt-get install nginx-light`, and an environment with `jupyter-server-proxy`
and `notebook`, whose Python MPPROF_JUPYTER names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visiting import MEASURED, Visit, serving, visit
from tests.paths import SAMPLES

pytestmark = [pytest.mark.browser, pytest.mark.full]
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
JUPYTER = os.environ.get("MPPROF_JUPYTER", sys.executable)
needs_nginx = pytest.mark.skipif(NGINX is None, reason="no nginx: `apt-get install nginx-light` on Debian")


@contextmanager
def nginx(folder: Path, *locations: str) -> Iterator[str]:
    """A server of nginx with these locations; gives its address."""
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    setting = folder / "nginx.conf"
    command = [str(NGINX), "-c", str(setting), "-e", str(folder / "errors"), "-p", str(folder)]
    for _ in range(5):  # somebody else may take the port meanwhile
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        setting.write_text(
            f"pid {folder}/pid; {'user root;' if os.geteuid() == 0 else ''} events {{}}\n"
            f"http {{ access_log off; {temporary}\n"
            f"server {{ listen 127.0.0.1:{port};\n{' '.join(locations)}\n}} }}\n"
        )
        if subprocess.run(command, check=False).returncode == 0:  # it listens, and goes on by itself
            break
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        subprocess.run([*command, "-s", "stop"], check=True)


def walk(seen: Visit, prefix: str) -> None:
    """Goes through pages of all kinds below a prefix: links, rows, canvas, figures, downloads."""
    seen.open_well(f"{prefix}/{MEASURED}")
    seen.page.click(".mp-tab:text-is('Kernels')")
    seen.page.wait_for_selector("#kernels[data-loaded]")
    assert f"{prefix}/kernels?" in seen.page.url
    seen.page.click(".mp-tab:text-is('Timeline')")
    seen.page.wait_for_selector("#timeline[data-drawn] canvas")
    seen.page.click(".mp-tab:text-is('Steps')")
    seen.page.wait_for_selector("#step-times .js-plotly-plot .main-svg")
    with seen.page.expect_download() as download:
        seen.page.click("#share summary")
        seen.page.click("[data-share=html]")
    assert 'id="mpprof-report"' in Path(download.value.path()).read_text()
    with seen.page.expect_navigation(url=f"**{prefix}/runs*"):
        seen.page.click(".mp-brand")
    seen.page.wait_for_selector("#runs[data-drawn] tr[data-filled]")
    seen.assert_quiet()


@needs_nginx
@pytest.mark.parametrize("end", ["", "/"], ids=["the prefix handed on", "the prefix taken away"])
def test_behind_nginx_below_a_path(chromium: Any, tmp_path: Path, end: str) -> None:
    with serving(SAMPLES, "--base-path", "/lab/mpprof/") as own:
        place = f"location /lab/mpprof/ {{ proxy_pass {own}{end}; proxy_set_header Host $host; }}"
        with nginx(tmp_path, place) as address:
            walk(visit(chromium, address), "/lab/mpprof")


@needs_nginx
def test_a_foreign_name_prefix_and_frame_are_refused_unless_they_are_named(
    chromium: Any, tmp_path: Path
) -> None:
    def places(own: str) -> str:
        return (
            f"location / {{ proxy_pass {own}; proxy_set_header Host gpu7.lab; }}\n"
            f"location /prefix/ {{ proxy_pass {own}; }}\n"
            f"location = /frame {{ default_type text/html; return 200 '<iframe src=\"{own}/{MEASURED}\"></iframe>'; }}"
        )

    closed, opened = tmp_path / "closed", tmp_path / "opened"
    for folder in (closed, opened):
        folder.mkdir()
    with serving(SAMPLES) as own, nginx(closed, places(own)) as address:
        seen = visit(chromium, address)
        assert seen.page.goto(f"{address}/{MEASURED}").status == 403
        assert "only to this machine's own names" in seen.page.inner_text("body")
        seen.page.goto(f"{address}/prefix/{MEASURED}")  # the page's own files lie elsewhere
        assert seen.page.locator("#headline").count() == 0
        with seen.page.expect_console_message(lambda message: "frame-ancestors" in message.text):
            seen.page.goto(f"{address}/frame")
        with (
            serving(SAMPLES, "--allow-host", "gpu7.lab", "--allow-frame", address) as other,
            nginx(opened, places(other)) as named,
        ):
            visit(chromium, named).open_well(f"/{MEASURED}")
            seen.page.evaluate(
                "source => { document.querySelector('iframe').src = source; }", f"{other}/{MEASURED}"
            )
            seen.page.frame_locator("iframe").locator("#headline").wait_for()


def _own(folder: Path) -> dict[str, str]:
    kinds = ("CONFIG", "DATA", "RUNTIME")
    return os.environ | {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in kinds}


@contextmanager
def jupyter(folder: Path) -> Iterator[str]:
    """Jupyter's server over a folder; gives its address."""
    command = [JUPYTER, "-m", "notebook", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=_own(folder)) as process:
        try:
            lines = iter(process.stderr.readline, "")  # type: ignore[union-attr]
            found = next(filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in lines)))
            yield found.group()
        finally:
            process.terminate()
            process.communicate(timeout=30)


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[str]:
    asks = [JUPYTER, "-c", "import jupyter_server_proxy, notebook"]
    if subprocess.run(asks, check=False, capture_output=True).returncode:
        pytest.skip("no jupyter-server-proxy and notebook: MPPROF_JUPYTER names a Python that has them")
    with jupyter(tmp_path) as address:
        yield address


def test_through_jupyter_server_proxy_and_in_a_notebook_s_frame(
    chromium: Any, notebook: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    prefix = f"/proxy/{port}"
    shown = {
        "cell_type": "code", "execution_count": 1, "id": "a", "metadata": {}, "source": "IFrame(...)",
        "outputs": [{"output_type": "display_data", "metadata": {}, "data": {
            "text/html": f'<iframe src="{prefix}/{MEASURED}" width="1000" height="700"></iframe>'}}],
    }  # fmt: skip
    file = tmp_path / "run.ipynb"
    file.write_text(json.dumps({"cells": [shown], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    options = ("--port", str(port), "--base-path", f"{prefix}/", "--allow-frame", notebook)
    with serving(SAMPLES, *options):
        walk(visit(chromium, notebook), prefix)
        trust = "from nbformat.sign import TrustNotebookApp as App; App.launch_instance()"
        subprocess.run([JUPYTER, "-c", trust, str(file)], check=True, env=_own(tmp_path))
        page = visit(chromium, notebook).page
        page.goto(f"{notebook}/notebooks/run.ipynb")
        frame = page.frame_locator(f"iframe[src^='{prefix}']")
        frame.locator("#headline").wait_for(timeout=60_000)
        frame.locator(".mp-tab:text-is('Kernels')").evaluate(
            "tab => tab.click()"
        )  # Jupyter asks for a kernel
        frame.locator("#kernels[data-loaded]").wait_for()
