"""What specs may say beside plain text, their equations and their Markdown: set, and never more than that."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from harness.equations import ATTRIBUTES, ELEMENTS, mathml
from harness.errors import UserError
from harness.report import prose
from harness.spec import load_files
from tests.site_fixture import TITLES


class Read(HTMLParser):
    """The text of some HTML, and its elements with their attributes."""

    def __init__(self, html: str):
        super().__init__()
        self.text, self.elements = "", []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_an_equation_is_set_with_its_latex_kept():
    tree = ET.fromstring(mathml(r"y_t = \sum_{s \le t} \frac{A_{ts}}{\sqrt{K}} v_s"))
    names = {element.tag for element in tree.iter()}
    assert {"math", "msub", "munder", "mfrac", "msqrt", "annotation"} <= names
    assert tree.findtext(".//annotation") == r"y_t = \sum_{s \le t} \frac{A_{ts}}{\sqrt{K}} v_s"
    assert "≤" in "".join(tree.itertext())


@pytest.mark.parametrize(
    "tex",
    [
        r"\text{<script>alert(1)</script>}",
        r"\text{&lt;img src=x onerror=alert(2)&gt;}",
        "</math><img src=x onerror=alert(3)>",
        r"\href{javascript:alert(4)}{x}",
        r"\style{background:url(x)}{x} \class{top}{y}",
        r"\color{red}{x}",
    ],
)
def test_an_equation_brings_nothing_but_mathematics(tex):
    found = Read(mathml(tex)).elements
    assert {tag for tag, _ in found} <= ELEMENTS | {"semantics", "annotation"}
    assert {name for _, given in found for name in given} <= ATTRIBUTES.keys() | {"encoding"}


@pytest.mark.parametrize(
    ("tex", "why"),
    [
        (r"\frac{1}{", r"no available tokens"),
        (r"x = \sofmax y", r"holds '\\\\sofmax'"),
        ("a &= b", "one equation each"),
        ("x_1_2", "double subscripts"),
    ],
)
def test_what_cannot_be_set_is_refused_in_a_sentence(tex, why):
    with pytest.raises(ValueError, match=why):
        mathml(tex)


PAPER = """title: A
arxiv: "2401.00001"
year: 2024
authors: [A]
summary: s
equations:
  - {tex: 'y = \\sofmax x', where: eq. 1}
scale_gap: g
runs: {softmax: {impl: softmax}}
claims: [{id: later, quote: q, where: w, kind: untested, reason: r}]
"""


def test_a_spec_is_told_the_line_of_a_bad_equation(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(PAPER)
    with pytest.raises(UserError, match=r"a\.yaml:7: equations\[0\]\.tex: .*sofmax.* not understood"):
        load_files([file])
    file.write_text(PAPER.replace("sofmax", "tanh"))
    assert load_files([file])["a"].equations[0].where == "eq. 1"


@pytest.mark.parametrize("write", [prose.block, prose.line])
@pytest.mark.parametrize(
    "title", [*TITLES, "2*3*4 and __x__", "\u202eright\u202c to left", r"\alpha \* &amp;", "# no head"]
)
def test_hostile_prose_is_shown_as_it_stands(title, write):
    found = Read(str(write(title)))
    assert found.text.strip() == title
    assert {tag for tag, _ in found.elements} <= {"p"}


def test_prose_has_code_lists_and_links_to_the_web_alone():
    text = "`a_b` and [one](https://arxiv.org/abs/2401.00001), [two](javascript:alert(1)), [3](data:text/html,x)"
    found = Read(str(prose.block(text + "\n\n- x\n- y")))
    assert [tag for tag, _ in found.elements] == ["p", "code", "a", "ul", "li", "li"]
    assert found.elements[2][1] == {"href": "https://arxiv.org/abs/2401.00001"}
    assert "[two](javascript:alert(1))" in found.text
