"""Checks URLs of stores, databases and servers: refuses ambiguous URLs, and removes secrets for messages and logs.

A URL can contain a user name and a password. If these contain characters with a meaning in URLs, parsers of URLs
disagree about where they end. Then an error message of a parser can quote a part of the password.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:([^/?#]*)@)?([^/?#@]*)([^?#]*)(.*)", re.DOTALL)
_ENCODE: Final = (
    "percent-encode the characters @ / ? # % and : in the user name and in the password (%40 %2F %3F %23 %25 and %3A)"
)
_SECRETS: Final = ("user", "username", "password", "sentinel_username", "sentinel_password")  # options of URLs
_SEVERAL: Final = ("+sentinel", "+cluster")  # endings of the schemes whose URLs name several servers


def check_url(url: str, schemes: Sequence[str]) -> None:
    """Check that a URL has one of the schemes, and that all parsers find the same user name, password and host in it.

    The message of an error says what to write, and quotes nothing of the URL.
    """
    parts = _PARTS.fullmatch(url)
    if parts is None or parts[1] not in schemes:
        raise ValueError(f"expected {' or '.join(f'{scheme}://…' for scheme in schemes)}")
    _, user, host, path, rest = parts.groups()
    if "@" in f"{user or ''}{path}{rest}" or "#" in rest:
        raise ValueError(_ENCODE)
    for place in _places(parts[1], host):
        if not place.startswith("[") and place.count(":") > 1:
            raise ValueError(f"an IPv6 address is in brackets, such as [::1]:6379. Otherwise {_ENCODE}")
        try:
            urlsplit(f"//{place}").port  # noqa: B018 - it checks the port
        except ValueError:
            raise ValueError(f"what follows the host is not a port. If it belongs to a password, {_ENCODE}") from None


def servers_of(url: str, port: int) -> list[tuple[str, int]]:
    """Return the host and the port of each server that a checked URL names. `port` is the default port."""
    parts = _PARTS.fullmatch(url)
    places = [urlsplit(f"//{place}") for place in (_places(parts[1], parts[3]) if parts is not None else ())]
    if not all(place.hostname and not re.search(r"\s", place.hostname) for place in places):
        raise ValueError("name the servers, separated by commas and without spaces, such as a:6379,b:6379")
    return [(place.hostname or "", place.port or port) for place in places]


def _places(scheme: str, hosts: str) -> list[str]:
    return hosts.split(",") if scheme.endswith(_SEVERAL) else [hosts]


def shown(url: str) -> str:
    """Remove user information and options from a URL, for messages and logs. A refused URL keeps only its scheme."""
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return "…"
    try:
        check_url(url, [parts[1]])
    except ValueError:
        return f"{parts[1]}://…"
    return f"{parts[1]}://{parts[3]}{parts[4]}"


def scrubbed(text: str, url: str) -> str:
    """Hide the user name and the password of a URL in an error message of its driver."""
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return text
    user, _, password = (parts[2] or "").partition(":")
    given = [user, password, *(value for name, value in parse_qsl(parts[5][1:]) if name in _SECRETS)]
    for secret in sorted({form for one in given for form in (one, unquote(one)) if form}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return text
