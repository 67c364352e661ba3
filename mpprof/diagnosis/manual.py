"""The manual: one page per cause, the docstring of its rule with the table's remedies."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator

from mpprof.diagnosis import rules
from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.remedies.choosing import beyond_keras, in_keras
from mpprof.diagnosis.wording import sentence
from mpprof.errors import NotFoundError

IGNORE = "When to ignore"
HEADINGS = (
    "What it means",
    "How we know",
    "What it costs",
    "What to do",
    IGNORE,
    "Sources",
)

MOST_HINTS = 5
NEARLY = 0.75
"""How alike a name and a slug are that differ by a slip of the keyboard."""


def codes() -> tuple[tuple[str, str, str], ...]:
    """Return (code, slug, title) of every cause that mpprof can judge, by code."""
    return tuple(sorted((rule.CODE, rule.SLUG, rule.TITLE) for rule in rules.ALL))


def explain(cause: str) -> str:
    """Return the manual page of a cause, given by its code or slug in any case (MP104, float32-island).

    Raises NotFoundError, naming the nearest causes, for anything else.
    """
    return page(_rule_of(cause))


def code_of(cause: str) -> str:
    """Return the code of a cause that is given as to `explain`, whose error it raises."""
    return _rule_of(cause).CODE


def _rule_of(cause: str) -> Rule:
    wanted = cause.strip().lower()
    for rule in rules.ALL:
        if wanted in (rule.CODE.lower(), rule.SLUG, f"{rule.CODE} {rule.SLUG}".lower()):
            return rule
    near = _nearest(wanted)
    raise NotFoundError(f"no cause is called {cause!r}", next=_hint(near))


def _hint(near: list[Rule]) -> str:
    if not near:
        return "`mpprof explain` without a code lists them all"
    *before, last = [f"{rule.CODE} {rule.SLUG}" for rule in near[:MOST_HINTS]]
    named = f"{', '.join(before)} or {last}" if before else last
    hint = f"Did you mean {named}?"
    return f"{hint} `mpprof explain` lists all causes" if len(near) > MOST_HINTS else hint


def page(rule: Rule) -> str:
    """Return the page as it is printed: the code, the slug, and the rule's docstring, with the table's
    remedies as what to do: for Keras on TensorFlow, then for other frameworks and cards."""
    before, _, after = inspect.cleandoc(rule.__doc__ or _docstring(rule)).strip().partition(f"{IGNORE}\n")
    others = [_filled(f"{names}: {remedies}.", hang="    ") for names, remedies in beyond_keras(rule.CODE)]
    to_do = "\n".join(["What to do", *_in_keras(rule), *([""] if others else []), *others])
    return f"{rule.CODE} {rule.SLUG}\n\n{before}{to_do}\n\n{IGNORE}\n{after}\n"


def _in_keras(rule: Rule) -> Iterator[str]:
    """Yield the lines of what to do with Keras on TensorFlow; code stands apart, further in."""
    after_code = False
    for remedy in in_keras(rule.CODE):
        said = sentence(remedy.text)
        if after_code:
            yield ""
        yield _filled(f"{said[:-1]}:" if remedy.snippet else said)
        if remedy.snippet:
            yield ""
            yield textwrap.indent(remedy.snippet, " " * 8)
        after_code = bool(remedy.snippet)


def _filled(text: str, hang: str = "") -> str:
    return textwrap.fill(
        text, 110, initial_indent="    ", subsequent_indent=f"    {hang}",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _docstring(rule: Rule) -> str:
    """Return the docstring of the rule from its source: `python -OO` keeps no docstrings."""
    import ast  # only here

    return ast.get_docstring(ast.parse(inspect.getsource(sys.modules[rule.__name__]))) or ""


def _nearest(wanted: str) -> list[Rule]:
    """Return the rules that are nearest to `wanted`: by its first three digits for what looks like a code,
    else those with nearly this name, then those that speak of its words."""
    number = re.fullmatch(r"(?:mp)?(\d{1,3})\d*", wanted)
    if number:
        away = {rule.CODE: abs(int(rule.CODE[2:]) - int(number.group(1))) for rule in rules.ALL}
        near = sorted(rules.ALL, key=lambda rule: (away[rule.CODE], rule.CODE))[:3]
        return near[:1] if not away[near[0].CODE] else near
    by_slug = {rule.SLUG: rule for rule in rules.ALL}
    import difflib  # only where a name was not found

    near = [by_slug[slug] for slug in difflib.get_close_matches(wanted, by_slug, n=3, cutoff=NEARLY)]
    return near + [rule for rule in _that_speak_of(wanted) if rule not in near]


def _that_speak_of(words: str) -> list[Rule]:
    """Return the rules whose name or page holds one of these words, those with most of them in their name
    first, then those with most of them on their page, and most often. A word that is on nearly all pages
    distinguishes none of them."""
    patterns = [re.compile(rf"\b{re.escape(word)}") for word in re.findall(r"[a-z0-9]{3,}", words)]
    names = {rule.CODE: f"{rule.SLUG} {rule.TITLE} {rule.ABOUT}".lower() for rule in rules.ALL}
    pages = {rule.CODE: page(rule).lower() for rule in rules.ALL}
    telling = [p for p in patterns if sum(bool(p.search(text)) for text in pages.values()) < len(pages) / 2]

    def rank(rule: Rule) -> tuple[int, int, int]:
        named = sum(bool(pattern.search(names[rule.CODE])) for pattern in patterns)
        often = [len(pattern.findall(pages[rule.CODE])) for pattern in telling]
        return named, sum(map(bool, often)), sum(often)

    found = {rule.CODE: rank(rule) for rule in rules.ALL}
    speaking = [rule for rule in rules.ALL if any(found[rule.CODE])]
    return sorted(speaking, key=lambda rule: (*(-n for n in found[rule.CODE]), rule.CODE))
