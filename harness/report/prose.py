"""Sentences of the specs, in which `code`, lists, quotations and links may stand, as Markdown has them.

The rest of Markdown stays the text that it is: raw HTML, pictures, headings, and stress, since a * in these sentences
is a product. What the reader of Markdown makes is cleaned once more, so that nothing but the elements below comes out.
"""

from __future__ import annotations

from functools import cache

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup

from harness.equations import mathml

LEFT_OUT = (
    *("html_block", "html_inline", "image", "heading", "lheading", "hr", "code", "reference"),
    *("emphasis", "escape", "entity"),
)
ELEMENTS = {"p", "code", "pre", "a", "ul", "ol", "li", "br", "blockquote"}


@cache
def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).disable(list(LEFT_OUT))


def block(text: str) -> Markup:
    """Paragraphs and lists."""
    return _clean(_reader().render(text))


def line(text: str) -> Markup:
    """What may stand inside a paragraph, on one line."""
    return _clean(_reader().renderInline(text))


def equation(tex: str) -> Markup:
    """A displayed equation in MathML; `harness.equations` makes it and leaves nothing in that runs."""
    return Markup(mathml(tex))


def _clean(html: str) -> Markup:
    safe = nh3.clean(html, tags=ELEMENTS, attributes={"a": {"href"}}, url_schemes={"http", "https"}, link_rel=None)
    return Markup(safe)
