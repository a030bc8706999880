"""Equations as the specs write them, in LaTeX, and as browsers set them, in MathML.

latex2mathml reads the LaTeX. Its writer leaves `<` of a text as it is, so its tree is taken and written here: every
text escaped, no element and no attribute but those below.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import unescape
from xml.etree import ElementTree as ET

ELEMENTS = {
    *("math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mstyle", "mpadded", "mphantom"),
    *("mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts"),
    *("mtable", "mtr", "mtd"),
}
TEX = "application/x-tex"  # the kind of the annotation that keeps the LaTeX for those who copy
ATTRIBUTES = {  # name: what its value must be
    "display": "block|inline",
    "mathvariant": "[a-z-]+",
    "stretchy": "true|false",
    "fence": "true|false",
    "form": "prefix|infix|postfix",
    "accent": "true|false",
    "displaystyle": "true|false",
    "columnalign": "[a-z ]+",
    "linethickness": r"[\d.]+\w*",
    "width": r"-?[\d.]+\w*",
    "minsize": r"[\d.]+\w*",
    "maxsize": r"[\d.]+\w*",
}


@lru_cache(maxsize=1024)
def mathml(tex: str) -> str:
    """The MathML of one displayed equation. Raises ValueError with a sentence for what cannot be set."""
    from latex2mathml.converter import convert_to_element

    try:
        tree = convert_to_element(tex, display="block")
    except Exception as error:  # the library has a class of its own for each fault, with no common base and no text
        fault = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).removesuffix(" Error").lower()
        raise ValueError(f"{tex[:60]!r} is not LaTeX that can be set ({fault})") from None
    for element in tree.iter():
        _tidy(element, tex)
    whole = ET.Element("math", tree.attrib)
    kept = ET.SubElement(whole, "semantics")
    kept.extend(tree)
    ET.SubElement(kept, "annotation", encoding=TEX).text = tex
    return ET.tostring(whole, encoding="unicode")


def _tidy(element: ET.Element, tex: str) -> None:
    """Text as it is to be read, only attributes that lay out. Raises ValueError for what was not understood."""
    element.text, element.tail = (unescape(part) if part else None for part in (element.text, element.tail))
    read = element.text or ""
    if element.tag not in ELEMENTS:
        raise ValueError(f"{tex[:60]!r} needs <{element.tag}>, which is not set here")
    if element.tag != "mtext" and (read.startswith("\\") or read in ("&", "}")):
        raise ValueError(f"{tex[:60]!r} holds {read!r}, which is not understood; use plain LaTeX, one equation each")
    for name, value in list(element.attrib.items()):
        if not re.fullmatch(ATTRIBUTES.get(name, "(?!)"), value):
            del element.attrib[name]
