"""Messages about unknown names: most are typing mistakes, so the message suggests the nearest known name."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

_MOST_SHOWN: Final = 64  # characters of the unknown name
_LIKENESS: Final = 0.7  # from 0 to 1; below this, `LIVE_` alone makes two names similar
_MOST_LISTED: Final = 20  # known names; longer lists are not useful


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """A clause that says that a name is unknown, and suggests the nearest known name or lists all of them.

    `what` is the kind of name, such as `parameter`.
    """
    shown = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}…"
    clause = f"there is no {what} `{shown}`"
    near = get_close_matches(name[:_MOST_SHOWN], known, n=1, cutoff=_LIKENESS)
    if near:
        return f"{clause}; did you mean `{near[0]}`?"
    if 0 < len(known) <= _MOST_LISTED:
        return f"{clause}; there are: {', '.join(sorted(known))}"
    return clause if known else f"{clause}; there are none"
