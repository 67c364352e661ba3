"""The notebook of the docs runs, and shows what it shows. `python -m tests.test_notebook` writes its outputs anew."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.paths import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def executed() -> Any:
    """The notebook as Jupyter's kernel runs it, in its own directory."""
    nbclient = pytest.importorskip("nbclient", reason="no Jupyter here: pip install nbclient ipykernel")
    import nbformat

    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    )  # fmt: skip
    client.execute()
    return notebook


def shown(notebook: Any) -> list[tuple[str, str]]:
    """(source, text) of each cell that prints or shows something; of the card only that it is one."""
    outputs = [
        (cell.source, output.get("text") or output.data.get("text/html", output.data["text/plain"]))
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]
    return [(source, "card" if text.startswith("<iframe") else text) for source, text in outputs]


def test_the_notebook_shows_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat

    monkeypatch.delenv("COLUMNS", raising=False)
    stored, fresh = shown(nbformat.read(NOTEBOOK, as_version=4)), shown(executed())
    assert stored == fresh, "python -m tests.test_notebook writes the outputs anew"
    assert [text for _, text in fresh].count("card") == 1
    assert sum(text.startswith("<table>") for _, text in fresh) == 2


if __name__ == "__main__":
    import nbformat

    os.environ.pop("COLUMNS", None)
    nbformat.write(executed(), NOTEBOOK)
