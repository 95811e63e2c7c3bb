"""The languages of the pages: one table of words for each language, which the scripts of the pages share."""

from contextlib import suppress
from functools import cache
from typing import Final

import msgspec
from markupsafe import Markup, escape

from live.domain.score_format import MINUS, ScoreFormat
from live.web.services import assets

Message = str | dict[str, str]  # a sentence, or its forms for `one` and for any `other` number

TAGS: Final = ("en", "zh-Hans")  # the first is the default

_OWN: Final = ("words", "words/admin")  # words that only the server uses: for all pages, for administrators
_SHARED: Final = {"words": "{}.js", "storyTable": "story/{}.js"}  # the tables of the page's scripts


class Language(msgspec.Struct, frozen=True):
    """A language by its tag (BCP 47), with everything that a page says."""

    tag: str
    table: dict[str, Message]

    def translate(self, name: str, /, **values: str | int) -> str:
        """Return a sentence as text. `n` chooses between the forms of a counted text; numbers are grouped."""
        return self._message(name, values).format(**{hole: _shown(value) for hole, value in values.items()})

    def markup(self, name: str, /, **values: str | int) -> Markup:
        """Return a sentence as HTML. Values are escaped, unless they are HTML themselves."""
        message = escape(self._message(name, values))
        return message.format(**{hole: _shown(value) for hole, value in values.items()})

    def group(self, prefix: str) -> dict[str, Message]:
        """Return the sentences whose names begin with a prefix, for the page's script. Their names lose the prefix."""
        return {name.removeprefix(prefix): text for name, text in self.table.items() if name.startswith(prefix)}

    def _message(self, name: str, values: dict[str, str | int]) -> str:
        message = self.table[name]
        if isinstance(message, str):
            return message
        return message.get("one" if values["n"] == 1 else "other", message["other"])


@cache
def languages() -> dict[str, Language]:
    """Read all languages by tag.

    `templates` has the words that only the server uses, and `static` the words that scripts use too.
    """
    found = {}
    for tag in TAGS:
        table: dict[str, Message] = {}
        for name, path in _SHARED.items():
            script = (assets("static") / "client" / "words" / path.format(tag)).read_text(encoding="utf-8")
            table |= _decode(script.partition(f"export const {name} = ")[2].rstrip().removesuffix(";"))
        for folder in _OWN:
            table |= _decode((assets("templates") / folder / f"{tag}.json").read_text(encoding="utf-8"))
        found[tag] = Language(tag, table)
    return found


def language_of(requested: str | None, accepted: str) -> Language:
    """Choose the language in the address, or else the language that the browser prefers (`Accept-Language`)."""
    offers = [(requested, 2.0)] if requested else []
    for part in accepted.split(","):
        tag, _, parameter = part.partition(";")
        name, _, value = parameter.strip().partition("=")
        quality = 0.0
        with suppress(ValueError):
            quality = float(value) if name == "q" else 1.0
        offers.append((tag.strip(), quality))
    # Only the part before the first hyphen counts, so readers of any kind of Chinese get the kind that the server has.
    primary = {tag.partition("-")[0]: tag for tag in TAGS}
    for tag, quality in sorted(offers, key=lambda offer: -offer[1]):
        found = primary.get(tag.lower().partition("-")[0])
        if found is not None and quality > 0:
            return languages()[found]
    return languages()[TAGS[0]]


def grouped(number: int | None, score_format: ScoreFormat | None = None) -> str:
    """Write a number with thousands separators and a true minus, as in the page's script. None becomes a dash.

    A score is written in the format of its board.
    """
    if number is None:
        return "\u2013"
    return f"{number:,}".replace("-", MINUS) if score_format is None else score_format.write(number)


def _shown(value: str | int) -> str:
    return grouped(value) if isinstance(value, int) else value


def _decode(text: str) -> dict[str, Message]:
    return msgspec.json.decode(text, type=dict[str, Message])
