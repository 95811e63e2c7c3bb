"""Items: the titles, links and pictures of members. They are the same on all boards."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from live.domain.event import Member, member_fault
from live.domain.meaning import IMAGE, MEMBER, TITLE, URL
from live.domain.text import PATTERN, text_fault

MOST_TITLE: Final = 200  # maximum characters of a title
MOST_URL: Final = 2048  # maximum characters of a link, and of the URL of a picture

# The URL is ASCII without spaces, quotes, angle brackets and backslashes, so every reader finds the same URL in it. It
# has no user name.
_URL: Final = re.compile(
    r"^[Hh][Tt][Tt][Pp][Ss]://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(?:[/?#][!#-&(-;=?-\[\]_a-z~]*)?$"
)

# The types in the API contracts. `item_faults` checks both.
Title = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MOST_TITLE, "pattern": PATTERN})]
Url = Annotated[str, Meta(extra_json_schema={"maxLength": MOST_URL, "pattern": _URL.pattern})]


class Item(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The title, link and picture of a member. `image` is the URL of a small picture."""

    member: Annotated[Member, MEMBER] = msgspec.field(name="key")
    title: Annotated[Title, TITLE]
    url: Annotated[Url | None, URL] = None
    image: Annotated[Url | None, IMAGE] = None


def initial_of(name: str) -> str:
    """Return the character of a name that pages show if there is no picture."""
    return next((letter for letter in name if unicodedata.category(letter)[0] in "LN"), name[0])


def host_of(url: str) -> str | None:
    """Return the host of an https URL in lower case and without the port. Return None for any other text."""
    match = _URL.fullmatch(url) if len(url) <= MOST_URL else None
    return None if match is None else match[1].lower()


def is_listed(url: str, hosts: Sequence[str]) -> bool:
    """Tell whether a picture comes from the standard port of one of the hosts.

    Each of `hosts` is a name, `*.` and a name for all its subdomains, or `*` for every host.
    """
    match = _URL.fullmatch(url)
    host = host_of(url)
    if match is None or host is None or match[2]:
        return False
    return any(pattern in {"*", host} or (pattern[0] == "*" and host.endswith(pattern[1:])) for pattern in hosts)


def item_faults(item: Item, hosts: Sequence[str]) -> Iterator[str]:
    """Find what is wrong with an item. Pictures may come from `hosts` only."""
    if fault := member_fault(item.member):
        yield fault
    if len(item.title) > MOST_TITLE:
        yield f"`title` has {len(item.title)} characters; at most {MOST_TITLE} are allowed"
    elif fault := text_fault(item.title):
        yield f"`title` {fault}"
    if item.url is not None and host_of(item.url) is None:
        yield f"`url` is not a URL that begins with https://, of at most {MOST_URL} ASCII characters"
    if item.image is not None and not is_listed(item.image, hosts):
        yield "`image` is not an https URL on one of the hosts in the setting image_hosts (LIVE_IMAGE_HOSTS)"
