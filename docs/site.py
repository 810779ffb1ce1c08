"""What the site needs beyond Markdown: formulas without a script, links out of docs/, docstrings, tables."""

from __future__ import annotations

import dataclasses
import html
import logging
import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from published import (
    EXPERIMENTS,
    PUBLISHED,
    rows_of,
    table_file,
)  # beside this file, where mkdocs looks while it loads this one

from experiments.results import origin

ROOT = Path(__file__).resolve().parents[1]
log = logging.getLogger("mkdocs.hooks.site")  # a warning here ends a strict build


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Bring along the files of the repository that a page links to; fill in the tables of settings and of results."""

    def bring(match: re.Match[str]) -> str:
        folder = posixpath.dirname(page.file.src_uri)
        path = posixpath.normpath(posixpath.join("docs", folder, match["target"]))
        if path.startswith("docs/"):
            return match[0]
        if (ROOT / path).is_dir():
            return f"`{match['text'].strip('`')}`"
        if not (ROOT / path).is_file():
            log.warning("%s links to %s, which is not in the repository", page.file.src_uri, path)
            return match[0]
        # As text, a Markdown file from elsewhere does not become a page of the site.
        copy = f"files/{path}.txt" if path.endswith(".md") else f"files/{path}"
        if files.get_file_from_path(copy) is None:
            files.append(File.generated(config, copy, abs_src_path=str(ROOT / path)))
        return f"[{match['text']}]({posixpath.relpath(copy, folder or '.')})"

    markdown = re.sub(r"\[(?P<text>[^\]]*)\]\((?P<target>\.\./[^)\s#]+)\)", bring, markdown)
    markdown = re.sub(r"<!-- table: (?P<name>\S+) -->", lambda match: results_table(match["name"], page), markdown)
    return markdown.replace("<!-- settings -->", settings_table())


def on_page_content(html_text: str, page: Page, **_: Any) -> str:
    """Formulas as MathML, which browsers show by themselves."""

    def to_mathml(match: re.Match[str]) -> str:
        display = match["open"] == "["
        mathml = convert(html.unescape(match["latex"]).strip(), display="block" if display else "inline")
        if "\\" in mathml:
            log.warning("%s: a formula is not understood: %s", page.file.src_uri, match["latex"])
        return f'<div style="overflow: auto hidden; padding: 0.6em 0">{mathml}</div>' if display else mathml

    pattern = r'<(span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</\1>'
    return re.sub(pattern, to_mathml, html_text, flags=re.DOTALL)


def results_table(name: str, page: Page) -> str:
    """A table of results/ as it is there, and a line on where its figures come from."""
    if name in EXPERIMENTS and name not in PUBLISHED:
        return f"*Not run yet: `python -m experiments {name}`.*"
    if name not in PUBLISHED:
        log.warning("%s asks for a table of %s, which there is not", page.file.src_uri, name)
        return ""
    return f"{table_file(name).read_text()}\n{origin(rows_of(name))}"


def settings_table() -> str:
    """One row for every field of the configuration, as ``pdadmm-g train --help`` has it."""
    from pdadmm_g.config import KINDS, RunConfig, words

    rows = ["| setting | default | what it may be | |", "|---|---|---|---|"]
    for field in dataclasses.fields(RunConfig):
        help_text = field.metadata["help"].replace("|", "\\|")
        rows.append(f"| `{field.name}` | `{field.default}` | {words(KINDS[field.name])} | {help_text} |")
    return "\n".join(rows)


class MarkdownDocstrings(griffe.Extension):
    """Formulas and references of our docstrings, which Python's own tools read too, as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of any object."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(docstring: str) -> str:
    r"""``:math:`` as \$...\$, ``.. math::`` as a block, references to objects as code."""
    docstring = re.sub(r":math:`([^`]+)`", lambda m: f"${' '.join(m[1].split())}$", docstring)
    docstring = re.sub(r":(?:class|meth|func|data):`~?([^`]+)`", lambda m: f"`{m[1].split('.')[-1]}`", docstring)
    block = r"^(?P<indent> *)\.\. math::(?P<body>[^\n]*(?:\n(?P=indent) +[^\n]+|\n(?=\n(?P=indent) +\\))*)"

    def display(match: re.Match[str]) -> str:
        return f"{match['indent']}$$ {' '.join(match['body'].split())} $$"

    return re.sub(block, display, docstring, flags=re.MULTILINE)
