"""The pages of the site that are made from the code (causes, JSON, API), and those that lie outside docs/."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import mpprof
from mpprof.diagnosis import manual, rules
from mpprof.diagnosis.outcomes import Rule
from mpprof.report import schema

ROOT = Path(__file__).resolve().parents[1]
BESIDE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "samples.md": "sample_traces/README.md",
}
"""By page: the document outside docs/ that it shows."""
FAMILIES = {
    "1": "Mixed precision not in effect",
    "2": "Skipped steps and loss scale",
    "3": "Host, input, launches",
    "4": "Matrix work",
    "5": "Other kernels",
    "6": "Memory",
    "7": "Several GPUs",
    "8": "Card and baseline",
    "9": "Measurement",
}
"""By the first digit of a code: what its causes have in common."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the causes into the navigation."""
    for section in config.nav or []:
        if "Causes" in section:
            families: list[Any] = [{title: [page_of(rule) for rule in some]} for title, some in by_family()]
            section["Causes"] = ["causes/index.md", *families]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for name, text in made().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Link the documents outside docs/ and the notebooks by their pages."""
    markdown = markdown.replace(".ipynb)", ".md)")
    for name, source in BESIDE.items():
        markdown = markdown.replace(f"](../{source})", f"]({name})")
    return markdown


def made() -> dict[str, str]:
    """Return the Markdown of every page that is made, by its name."""
    pages = {name: beside(ROOT / source) for name, source in BESIDE.items()}
    pages |= {page_of(rule): cause(rule) for rule in rules.ALL}
    pages |= {f"{name}-json.md": schema_page(name) for name in schema.DOCUMENTS}
    pages |= {f"{path.stem}.md": notebook(path) for path in (ROOT / "docs").glob("*.ipynb")}
    return pages | {"causes/index.md": causes(), "reference.md": reference()}


def beside(path: Path) -> str:
    """Return a document outside docs/ with its links as seen from docs/."""
    prefix = "" if path.parent == ROOT else f"{path.parent.name}/"
    text = re.sub(r"\]\((?!https?:|#)", f"](../{prefix}", path.read_text(encoding="utf-8"))
    return text.replace("](../docs/", "](")


def notebook(path: Path) -> str:
    """Return a notebook as Markdown, with the outputs that are stored in it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            text = "".join(output.get("text") or data.get("text/html") or data["text/plain"])
            parts.append(text if text.startswith("<") else f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def by_family() -> Iterator[tuple[str, list[Rule]]]:
    """Yield each family of causes with its rules, by code."""
    ordered = sorted(rules.ALL, key=lambda rule: rule.CODE)
    for digit, some in groupby(ordered, key=lambda rule: rule.CODE[2]):
        yield FAMILIES[digit], list(some)


def page_of(rule: Rule) -> str:
    return f"causes/{rule.SLUG}.md"


def causes() -> str:
    """Return the list of all causes."""
    parts = [
        "# Causes\n\nWhat can be in the way of mixed precision, in the words of `mpprof explain CODE`."
        " Each is *found*, *clear*, *not applicable* or *unable* in a report"
        " ([glossary](../glossary.md)).",
    ]
    for title, some in by_family():
        rows = [f"| [{each.CODE} {each.SLUG}]({each.SLUG}.md) | {each.TITLE} |" for each in some]
        parts.append("\n".join([f"## {title}\n", "| cause | |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def cause(rule: Rule) -> str:
    """Return the manual page of a cause as Markdown."""
    title, _, text = manual.page(rule).partition("\n\n")
    for heading in manual.HEADINGS:
        text = re.sub(rf"^{heading}$", f"## {heading}\n", text, flags=re.MULTILINE)
    text = fenced(re.sub(r"^ {4}", "", text, flags=re.MULTILINE))
    others = re.compile(r"^(?=(?:PyTorch|JAX|AMD)[^:\n]*: )", re.MULTILINE)
    return f"# {title}\n\n{others.sub('* ', text)}\n"


def fenced(text: str) -> str:
    """Return Markdown whose indented blocks are fenced as Python."""
    block = re.compile(r"(?<=\n\n)((?: {4}.*\n?|\n(?= {4}))+)")
    return block.sub(lambda found: f"```python\n{inspect.cleandoc(found[0])}\n```\n", text)


def reference() -> str:
    """Return the reference of the public names, which mkdocstrings fills."""
    functions = [name for name in mpprof.__all__ if name[0].islower()]
    classes = [name for name in mpprof.__all__ if name[0].isupper()]
    directives = [f"::: mpprof.{name}" for name in (*functions, *classes)]
    return "\n\n".join(["# API reference", *directives]) + "\n"


def schema_page(name: str) -> str:
    """Return the keys of a JSON document as tables, one for each kind of object."""
    document = schema.generated(name)
    parts = [
        f"# JSON of `mpprof {name}`",
        f"What `mpprof {name} --format json` prints, `{document['$id']}`. {document['description']}",
        f"The JSON Schema is part of the package: `mpprof/report/{name}.schema.json`.",
        keys_of(document),
    ]
    for each, shape in document["$defs"].items():
        parts += [f"## {each}", shape.get("description", "")]
        parts.append(keys_of(shape) if "properties" in shape else type_of(shape))
    return "\n\n".join(filter(None, parts)) + "\n"


def keys_of(shape: dict[str, Any]) -> str:
    """Return an object's keys as a table."""
    rows = []
    for key, value in shape["properties"].items():
        missing = "" if key in shape.get("required", ()) else "May be missing. "
        rows.append(f"| `{key}` | {type_of(value)} | {missing}{value.get('description', '')} |")
    return "\n".join(["| key | type | |", "| --- | --- | --- |", *rows])


def type_of(shape: dict[str, Any]) -> str:
    """Return a JSON Schema's type in words, with links to the objects of the page."""
    match shape:
        case {"$ref": ref}:
            name = ref.rpartition("/")[2]
            return "number" if name == "number" else f"[{name}](#{name})"
        case {"const": value}:
            return f"`{value}`"
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"anyOf": some}:
            return " or ".join(map(type_of, some))
        case {"type": "array", "prefixItems": items}:
            return f"[{', '.join(map(type_of, items))}]"
        case {"type": "array", "items": item}:
            return f"list of {type_of(item)}"
        case {"type": "object", "additionalProperties": {} as value}:
            return f"object of {type_of(value)}"
        case {"type": [*kinds]}:
            return " or ".join(kinds)
    return shape.get("type", "any value")
