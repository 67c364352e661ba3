"""The manual: one page per cause, which is the docstring of its rule."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap

from mpprof.diagnosis import rules
from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.remedies.choosing import beyond_keras
from mpprof.errors import NotFoundError

HEADINGS = (
    "What it means",
    "How we know",
    "What it costs",
    "What to do",
    "When to ignore",
    "Sources",
)


def codes() -> tuple[tuple[str, str, str], ...]:
    """Return (code, slug, title) of every cause that mpprof can judge, by code."""
    return tuple(sorted((rule.CODE, rule.SLUG, rule.TITLE) for rule in rules.ALL))


def subjects() -> dict[str, str]:
    """Return what each cause is about, in a few words, by its code."""
    return {rule.CODE: rule.ABOUT for rule in rules.ALL}


def explain(cause: str) -> str:
    """Return the manual page of a cause, given by its code or slug in any case ("MP104", "float32-island").

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
    hint = " or ".join(f"{rule.CODE} {rule.SLUG}" for rule in _nearest(wanted))
    raise NotFoundError(
        f"no cause is called {cause!r}",
        next=f"Did you mean {hint}?" if hint else "`mpprof explain` without a code lists them all",
    )


def page(rule: Rule) -> str:
    """Return the page as it is printed: the code, the slug, and the rule's docstring, with the table's
    remedies for other frameworks and cards at the end of what to do."""
    text = inspect.cleandoc(rule.__doc__ or _docstring(rule)).strip()
    others = [
        textwrap.fill(
            f"{names}: {remedies}.", 110, initial_indent="    ", subsequent_indent="        ",
            break_long_words=False, break_on_hyphens=False,
        )
        for names, remedies in beyond_keras(rule.CODE)
    ]  # fmt: skip
    before, heading, after = text.partition("\n\nWhen to ignore\n")
    to_do = "\n".join([before, *([""] if others else []), *others])
    return f"{rule.CODE} {rule.SLUG}\n\n{to_do}{heading}{after}\n"


def _docstring(rule: Rule) -> str:
    """Return the docstring of the rule from its source: `python -OO` keeps no docstrings."""
    import ast  # only here

    return ast.get_docstring(ast.parse(inspect.getsource(sys.modules[rule.__name__]))) or ""


def _nearest(wanted: str) -> list[Rule]:
    """Return at most three rules that are nearest to `wanted`: by number for what looks like a code, by
    spelling for the rest."""
    number = re.fullmatch(r"(?:mp)?(\d{1,4})", wanted)
    if number:
        return sorted(
            rules.ALL, key=lambda rule: (abs(int(rule.CODE[2:]) - int(number.group(1))), rule.CODE)
        )[:3]
    by_slug = {rule.SLUG: rule for rule in rules.ALL}
    import difflib  # only where a name was not found

    return [by_slug[slug] for slug in difflib.get_close_matches(wanted, by_slug, n=3, cutoff=0.4)]
