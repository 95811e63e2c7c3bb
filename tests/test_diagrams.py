"""The diagrams of the documentation: readable in light and dark, and with words for people who do not see them."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

import pytest

DOCS: Final = Path(__file__).parent.parent / "docs"
DIAGRAMS: Final = sorted(DOCS.glob("*.svg"))
SVG: Final = "{http://www.w3.org/2000/svg}"
READABLE: Final = 4.5  # the least contrast of text in WCAG 2.2, level AA
TEXTS: Final = ("ink", "quiet", "mark")


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("path", DIAGRAMS, ids=[path.name for path in DIAGRAMS])
def test_a_diagram_is_accessible(path: Path) -> None:
    """A diagram has a title, a description, and enough contrast in both schemes. It loads nothing."""
    text = path.read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314 - our own files
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "title desc"
    assert root.findtext(f"{SVG}title")
    assert len(root.findtext(f"{SVG}desc") or "") > 40
    assert not re.search(r"<script|href|@import|url\((?!#)", text)
    schemes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r"svg \{(.*?)\}", text)]
    assert len(schemes) == 2
    for scheme in schemes:
        for ink in TEXTS:
            assert contrast(scheme[ink], scheme["back"]) >= READABLE, (ink, scheme)
        assert contrast(scheme["ink"], scheme["fill"]) >= READABLE
        assert contrast(scheme["quiet"], scheme["fill"]) >= READABLE


def test_every_diagram_is_shown_with_words() -> None:
    """The alternative text says what the diagram shows."""
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for path in DIAGRAMS:
        (words,) = re.findall(rf"!\[([^]]+)\]\({path.name}\)", pages)
        assert len(words) > 40
