"""Items: what members are called, where they lead and how they look, apart from any board."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from live.domain.event import key_fault

MOST_TITLE: Final = 200  # characters
MOST_URL: Final = 2048  # characters

# ASCII without spaces, quotes, angle brackets and backslashes, so that no reader finds another URL in it; no user name.
_URL: Final = re.compile(
    r"(?i:https)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(?:[/?#][^\0- \"'<>\\^`{|}\x7f-\U0010ffff]*)?"
)
_REFUSED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS: Final = "\u200c\u200d"  # format characters that emoji and some scripts need
_UNSEEN: Final = frozenset({"Cc", "Cf", "Mn", "Zl", "Zp", "Zs"})
_INVISIBLE: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")


class Item(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What pages show of a member (`key`). `image` is the URL of a small picture."""

    key: str
    title: str
    url: str | None = None
    image: str | None = None

    @property
    def initial(self) -> str:
        """What stands for a picture that is missing."""
        return next((letter for letter in self.title if unicodedata.category(letter)[0] in "LN"), self.title[0])


def host_of(url: str) -> str | None:
    """The host of an https URL in lower case, without its port; None for any other text."""
    match = _URL.fullmatch(url) if len(url) <= MOST_URL else None
    return None if match is None else match[1].lower()


def is_listed(url: str, hosts: Sequence[str]) -> bool:
    """Whether a picture comes from the standard port of one of the hosts: a name, `*.` with a name, or `*`."""
    match = _URL.fullmatch(url)
    host = host_of(url)
    if match is None or host is None or match[2]:
        return False
    return any(pattern in {"*", host} or (pattern[0] == "*" and host.endswith(pattern[1:])) for pattern in hosts)


def item_faults(item: Item, hosts: Sequence[str]) -> Iterator[str]:
    """What is wrong with an item. `hosts` are those from which pictures may come."""
    if fault := key_fault(item.key):
        yield fault
    if fault := _title_fault(item.title):
        yield f"`title` {fault}"
    if item.url is not None and host_of(item.url) is None:
        yield f"`url` is not a URL that begins with https://, of at most {MOST_URL} ASCII characters"
    if item.image is not None and not is_listed(item.image, hosts):
        yield "`image` is not an https URL on one of the hosts in the setting image_hosts (LIVE_IMAGE_HOSTS)"


def _title_fault(title: str) -> str | None:
    if len(title) > MOST_TITLE:
        return f"has {len(title)} characters; at most {MOST_TITLE} are allowed"
    for character in title:
        if unicodedata.category(character) in _REFUSED and character not in _JOINERS:
            return f"contains the control or format character U+{ord(character):04X}"
    if all(unicodedata.category(letter) in _UNSEEN or letter in _INVISIBLE for letter in title):
        return "has no visible character"
    return None if unicodedata.is_normalized("NFC", title) else "is not in Unicode normalization form NFC"
