"""The manual: every rule is listed, is a page with all its headings, and is found by code or slug."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from mpprof.diagnosis import rules
from mpprof.diagnosis.manual import HEADINGS, codes, explain
from mpprof.diagnosis.outcomes import Rule
from mpprof.errors import NotFoundError

FOLDER = Path(rules.__file__).parent


def test_every_file_of_rules_is_in_all_under_its_own_name() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    names = {f"{rule.CODE.lower()}_{rule.SLUG.replace('-', '_')}" for rule in rules.ALL}
    assert files == names == {rule.__name__.rsplit(".", 1)[-1] for rule in rules.ALL}
    assert len({rule.CODE for rule in rules.ALL}) == len(rules.ALL)


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.CODE)
def test_every_rule_has_what_the_engine_asks_of_it(rule) -> None:
    hints = {name: kind for name, kind in get_type_hints(Rule).items() if name.isupper()}
    assert hints
    assert [name for name, kind in hints.items() if not isinstance(getattr(rule, name, None), kind)] == []
    assert list(inspect.signature(rule.judge).parameters) == ["signals"]


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.CODE)
def test_every_page_has_all_headings_in_order_and_something_under_each(rule) -> None:
    page = explain(rule.CODE)
    assert page.startswith(f"{rule.CODE} {rule.SLUG}\n")
    lines = page.splitlines()
    at = [lines.index(heading) for heading in HEADINGS]
    assert at == sorted(at)
    for heading, start in zip(HEADINGS, at, strict=True):
        assert lines[start + 1].startswith("    "), f"nothing under {heading}"
    assert max(len(line) for line in lines if not line.startswith(" " * 8)) <= 110  # code is never broken


WITHOUT_CODE = ("MP307", "MP805")
"""A line to delete, and a ceiling that nothing changes."""


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.CODE)
def test_a_page_says_in_code_what_to_do_where_there_is_any(rule) -> None:
    page = explain(rule.CODE)
    told = page[page.index("What to do") : page.index("When to ignore")]
    assert bool(re.search(r"^ {8}\S", told, re.MULTILINE)) is (rule.CODE not in WITHOUT_CODE)


def test_what_to_do_stands_in_the_table_alone() -> None:
    assert [rule.CODE for rule in rules.ALL if "What to do" in (rule.__doc__ or "")] == []
    page = explain("MP402")
    assert "    Pad the vocabulary to a multiple of 64: " in page
    assert "\n\n        vocabulary = -(-vocabulary // 64) * 64\n\n" in page


def test_by_slug_and_in_any_case() -> None:
    assert (
        explain("float32-island") == explain("mp104") == explain(" MP104 ") == explain("MP104 float32-island")
    )


def test_an_unknown_cause_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match=r"MP104 float32-island"):
        explain("float32-iland")
    with pytest.raises(NotFoundError, match=r"MP912"):
        explain("MP999")
    with pytest.raises(NotFoundError, match="lists them all"):
        explain("zzzzzzzz")


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (
            "matrix",
            "MP404 low-intensity",
        ),  # its title speaks of it; MP607 fragmentation is only spelled like it
        ("vocabulary", "MP402 odd-vocabulary"),
        ("waiting for input", "MP301 input-bound"),
        ("swizzled layout transpose", "MP405 layout-transposes"),
        ("prefetch", "MP310 exposed-copies or MP301 input-bound?"),  # on their pages, in no title
    ],
)
def test_words_name_the_causes_that_speak_of_them(words: str, first: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        explain(words)
    assert str(caught.value.next).startswith(f"Did you mean {first}")
    assert "fragmentation" not in str(caught.value.next)


def test_of_a_word_of_many_causes_the_first_five_are_named() -> None:
    with pytest.raises(NotFoundError, match=r"\? `mpprof explain` lists all causes$") as caught:
        explain("matrix")
    assert len(re.findall(r"\bMP\d{3}\b", str(caught.value.next))) == 5


def test_only_causes_with_a_rule_are_listed() -> None:
    assert {code for code, _, _ in codes()} == {rule.CODE for rule in rules.ALL}


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.CODE)
def test_pages_refer_only_to_causes_that_can_be_looked_up(rule) -> None:
    mentioned = set(re.findall(r"\bMP\d{3}\b", explain(rule.CODE)))
    assert mentioned <= {other.CODE for other in rules.ALL}


def test_every_page_is_there_where_python_keeps_no_docstrings(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {rule.CODE: explain(rule.CODE) for rule in rules.ALL}
    for rule in rules.ALL:
        monkeypatch.setattr(rule, "__doc__", None)
    assert {code: explain(code) for code in pages} == pages


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("MP102", "PyTorch: scale the loss with torch.amp.GradScaler."),
        ("MP106", "JAX: compute the loss from outputs.astype(jnp.float32)"),
        ("MP307", "JAX: leave --xla_gpu_deterministic_ops=true out of XLA_FLAGS where speed is measured."),
        ("MP409", "AMD: MIOPEN_FIND_ENFORCE=3, which tries algorithms out once; a newer MIOpen."),
        ("MP501", "PyTorch: torch.compile(model) fuses norms and their casts."),
    ],
)
def test_what_to_do_with_other_frameworks_and_cards_follows_that_for_keras(cause, said) -> None:
    page = " ".join(explain(cause).split())
    assert page.index("What to do") < page.index(said) < page.index("When to ignore")


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.CODE)
def test_no_page_shows_a_value_that_only_a_run_has(rule) -> None:
    page = explain(rule.CODE)
    told = page[page.index("What to do") : page.index("When to ignore")]
    assert re.findall(r"\{[a-z_]+\}", told) == []
