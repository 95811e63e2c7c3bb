"""Reads the header of a script: its store keys and its request, so that tests can compare them with the code."""

import re
from typing import Final

import msgspec

_KEYS: Final = re.compile(r"-- KEYS ((?:\w+, )*\w+)(\.\.\.)?(?: — \S.*)?")
_REQUEST: Final = re.compile(r"^-- Request: (\w+)$", re.MULTILINE)


class Header(msgspec.Struct, frozen=True):
    """The header of a script: its store keys, those that it describes, whether the last one repeats, its request."""

    keys: tuple[str, ...]
    described: frozenset[str]
    more_keys: bool
    request: str


def parse_header(source: str) -> Header:
    """Read the header of a script.

    Raises:
        ValueError: a line is missing, out of order, or documents what is not there.
    """
    names: list[str] = []
    described: set[str] = set()
    more = False
    comments = [line for line in source.splitlines() if line.startswith("--")]
    for line in comments:
        if not line.startswith("-- KEYS"):
            continue
        match = _KEYS.fullmatch(line)
        if match is None or more:
            raise ValueError(f"{line!r} is malformed, or out of order")
        own, repeats = match[1].split(", "), match[2]
        names += own
        if " — " in line:
            if len(own) > 1:
                raise ValueError(f"{line!r} describes several store keys")
            described.update(own)
        more = bool(repeats)
    if not any(line.startswith("-- Returns ") for line in comments):
        raise ValueError("the header does not say what the script returns")
    requests = _REQUEST.findall(source)
    if len(requests) != 1:
        raise ValueError("the header does not name one request")
    return Header(tuple(names), frozenset(described), more, requests[0])
