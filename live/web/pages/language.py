"""The languages of the pages: one table of words for each language, which the scripts of the pages share."""

from functools import cache, cached_property
from typing import Final, TypeVar

import msgspec
from markupsafe import Markup, escape

from live.domain.text import MINUS, ScoreFormat
from live.http.reply import weights_of
from live.web.parts import assets

_T = TypeVar("_T", bound=str)

Message = str | dict[str, str]  # a sentence, or its forms for `one` and for any `other` number

TAGS: Final = ("en", "zh-Hans")  # the first is the default

_OWN: Final = ("words", "words/admin")  # words that only the server uses: for all pages, for administrators
_SHARED: Final = {"few": "few/{}.js", "most": "{}.js"}  # the tables of the page's scripts


class Language(msgspec.Struct, frozen=True, dict=True):
    """A language by its tag (BCP 47), with everything that a page says."""

    tag: str
    table: dict[str, Message]

    def translate(self, name: str, /, **values: str | int) -> str:
        """Return a sentence as text. `n` chooses between the forms of a counted text; numbers are grouped."""
        return _form(self.table[name], values).format(**{hole: _shown(value) for hole, value in values.items()})

    def markup(self, name: str, /, **values: str | int) -> Markup:
        """Return a sentence as HTML. Values are escaped, unless they are HTML themselves."""
        message = _form(self._html[name], values)
        if not values and "{" not in message:
            return message
        shown = {hole: escape(_shown(value)) for hole, value in values.items()}
        return Markup(str.format(message, **shown))  # noqa: S704 - the message and the values are escaped

    def group(self, prefix: str) -> dict[str, Message]:
        """Return the sentences whose names begin with a prefix, for the page's script. Their names lose the prefix."""
        return {name.removeprefix(prefix): text for name, text in self.table.items() if name.startswith(prefix)}

    @cached_property
    def _html(self) -> dict[str, Markup | dict[str, Markup]]:
        """Keep the table as HTML: most of the sentences of a page have no values."""
        return {
            name: escape(message)
            if isinstance(message, str)
            else {form: escape(text) for form, text in message.items()}
            for name, message in self.table.items()
        }


@cache
def languages() -> dict[str, Language]:
    """Read all languages by tag: words of the server from `templates`, words of scripts too from `static`."""
    found = {}
    for tag in TAGS:
        table: dict[str, Message] = {}
        for name, path in _SHARED.items():
            script = (assets("static") / "client" / "words" / path.format(tag)).read_text(encoding="utf-8")
            table |= _decode(script.partition(f"const {name} = ")[2].partition(";\n")[0])
        for folder in _OWN:
            table |= _decode((assets("templates") / folder / f"{tag}.json").read_text(encoding="utf-8"))
        found[tag] = Language(tag, table)
    return found


def language_of(requested: str | None, accepted: str) -> Language:
    """Choose the language in the address, or else the language that the browser prefers (`Accept-Language`)."""
    offers = weights_of(accepted) | ({requested: 2.0} if requested else {})
    # Only the part before the first hyphen counts, so readers of any kind of Chinese get the kind that the server has.
    primary = {tag.partition("-")[0]: tag for tag in TAGS}
    for tag, weight in sorted(offers.items(), key=lambda offer: -offer[1]):
        found = primary.get(tag.lower().partition("-")[0])
        if found is not None and weight > 0:
            return languages()[found]
    return languages()[TAGS[0]]


def grouped(number: int | None, score_format: ScoreFormat | None = None) -> str:
    """Write a number as the page's script does, in the format of its board if it is a score. None becomes a dash."""
    if number is None:
        return "\u2013"
    return f"{number:,}".replace("-", MINUS) if score_format is None else score_format.write(number)


def _form(message: _T | dict[str, _T], values: dict[str, str | int]) -> _T:
    """Return a sentence, or of a counted text the form for `n`."""
    if not isinstance(message, dict):
        return message
    return message.get("one" if values["n"] == 1 else "other", message["other"])


def _shown(value: str | int) -> str:
    return grouped(value) if isinstance(value, int) else value


def _decode(text: str) -> dict[str, Message]:
    return msgspec.json.decode(text, type=dict[str, Message])
