"""What a user can read is plain English with the field's terms: a few turns that must not come back.

Read are all texts of both packages that are sentences (messages, help, findings, remedies, pages), the docstrings that
are shown (manual pages of the rules, help of the commands, public names), and the documents in Markdown."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpprof
from mpprof.cli import NAMES, command
from mpprof.diagnosis import rules
from tests.paths import ROOT

BANNED = {
    # "is no trace": say "is not a trace". "There is no trace" and "is no faster" are plain.
    r"(?<!there )\b(?:is|are|was|were) (?:also |still )?no (?!longer\b|more\b|less\b|\w+er\b)": "is not a",
    r"(?<!there )\b(?:is|are) none\b(?! of)": "is not a",
    r"\bof no (?:step|run|use to|fit)\b": "before the first step, outside any run",
    r"\bnobody knows\b|\bwho knows\b": "not known",
    r"\bneither\b[^.;:]* nor\b[^.;:]* (?:are|is) there\b": "has neither ... nor",
    r"\bleads from one\b|\bwithout end\b": "redirect loop, endless",
    r"\bpassed over\b": "skipped",
    r"\b(?:is|are|was|were) told\b|\btells of\b": "reported, stated",
    r"\bwish(?:ed|es)?\b": "request",
    r"(?<!be )\bsaid (?:of|so)\b|\bis said\b|\bare said\b": "stated, reported",
    r"\blament|\bflavour|\bsalvag|\bawaited\b": "plain words",
    (
        METAPHORS
        := r"\b(?:shelf|shelves|wings?|doors?|doorway|voice|drawer|rooms|(?:every|each|another) room)\b"
    ): "the name of the package",
    # "of 25 ops 7 are kept": say "7 of 25 ops are kept".
    r"(?:^|[.;:] )of (?:the )?(?:\d+|\{\}) (?:[a-z,]+ )+(?:\d+|\{\}) (?:are|were|longest)\b": "7 of 25 ops",
    r"\bwithout --[a-z-]+ what\b": "leave out --option to ...",
    r"\bdispatch(?:es)? alike\b|\bthe short way\b|\ba call like any other\b": "the fast path",
    r"\bthereby\b|\bthereof\b|\bwhereof\b|\bwherein\b|\bhitherto\b|\blikewise\b": "plain words",
    r"\bat the least\b|\bat the most\b": "at least, at most; or the smallest and the largest value",
    r"\b(?:do|does|did) not tell\b(?! apart)|\b(?:nothing|no event) tells\b": "does not show",
    r"\bis whole\b": "the intact part",
    r"\bwithout a word\b": "without a warning",
    r"\bcommonest\b": "most common",
    r"\bkeep(?:s)? (?:its|their) word\b|\blooks? after (?:itself|themselves)\b": "what happens",
    r"\b(?:AMD|ROCm|MI\d{3}\w?)'?s? Tensor Cores?|Tensor Cores? (?:of|on) (?:an? )?(?:AMD|ROCm|MI\d{3})": "matrix core",
}
"""By pattern: what to write."""


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def sentences(path: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of the strings of a module that hold a space, but for docstrings; `{}` for values."""
    tree = parsed(path)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))  # a docstring, of a name or a constant
        elif isinstance(node, ast.Subscript) and "Annotated" not in ast.unparse(node.value):
            skipped |= {id(part) for part in ast.walk(node.slice)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield f"{path.relative_to(ROOT)}:{node.lineno}", " ".join(text.split())


def shown_docstrings() -> Iterator[tuple[str, str]]:
    """Manual pages of the rules, help of the commands, and public names with their public methods."""
    for rule in rules.ALL:
        yield f"mpprof explain {rule.CODE}", rule.__doc__ or ""
    for name in NAMES:
        yield f"mpprof {name} --help", command(name).__doc__ or ""
    for name in mpprof.__all__:
        value = getattr(mpprof, name)
        yield f"mpprof.{name}", inspect.getdoc(value) or ""
        for member, method in inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else ():
            if not member.startswith("_"):
                yield f"mpprof.{name}.{member}", inspect.getdoc(method) or ""


def documents() -> Iterator[tuple[str, str]]:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for paragraph in re.split(r"\n\s*\n|\n(?=[-*|#] ?)", prose):
            yield str(path.relative_to(ROOT)), " ".join(paragraph.split())


@functools.cache
def texts() -> list[tuple[str, str]]:
    code = [
        path
        for folder in ("mpprof", "dashboards/mpprof_dashboards", "examples")
        for path in ROOT.joinpath(folder).rglob("*.py")
    ]
    found = [each for path in sorted(code) for each in sentences(path)]
    return [*found, *((place, " ".join(text.split())) for place, text in shown_docstrings()), *documents()]


VERBS = """
Abandon Accept Add Analyse Answer Append Ask Assert Attach Begin Call Check Claim Close Collect
Compare Compile Correct Count Create Decide Describe Divide Do Draw Drop End Enter Estimate Explain
Extract Fetch Find Forget Give Go Hand Have Hold Import Index Install Iterate Join Judge Keep Leave
Load Log Look Make Mark Move Note Number Open Overwrite Pair Pass Patch Place Prepare Print Put
Raise Read Record Refuse Release Remove Rename Replace Reset Restart Restore Return Rewrite Round
Run Say Search Serve Set Settle Show Silence Sort Start Stop Switch Take Tell Train Turn Unpack Wait
Walk Warn Write Yield
"""
"""The verbs, in the imperative, that docstrings of functions begin with; another one is added here."""


def docstrings_of_functions() -> Iterator[tuple[str, str]]:
    """Those of mpprof and dashboards; a property's says what it is."""
    for path in sorted(each for folder in ("mpprof", "dashboards") for each in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if not any(each.endswith(("property", ".setter")) for each in decorators):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", ast.get_docstring(node) or ""


def test_messages_pages_and_documents_are_found() -> None:
    places = {place.partition(":")[0] for place, _ in texts()}
    assert {"README.md", "docs/ARCHITECTURE.md", "mpprof explain MP401", "mpprof report --help"} <= places
    assert {"mpprof.load", "mpprof.MPProfilerCallback", "mpprof/cli/report.py"} <= places
    assert len(texts()) > 2000


def test_no_docstring_speaks_in_metaphors() -> None:
    found = []
    for path in [*ROOT.glob("mpprof/**/*.py"), *ROOT.glob("dashboards/mpprof_dashboards/**/*.py")]:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                found += (
                    [f"{path.relative_to(ROOT)}: {text}"] if re.search(METAPHORS, text, re.IGNORECASE) else []
                )
    assert not found


@pytest.mark.parametrize("pattern", BANNED)
def test_turns_that_have_to_be_read_twice_are_not_used(pattern: str) -> None:
    found = [f"{place}: {text}" for place, text in texts() if re.search(pattern, text, re.IGNORECASE)]
    assert not found, f"write: {BANNED[pattern]}\n" + "\n".join(found)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    found = [(place, text) for place, text in docstrings_of_functions() if text]
    assert len(found) > 2000
    others = [
        f"{place}: {text}" for place, text in found if text.split()[0].rstrip(",;:") not in VERBS.split()
    ]
    assert not others, "\n".join(others)
