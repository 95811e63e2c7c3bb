"""Reads the header of a script: its store keys and its request, so that tests can compare them with the code."""

import re
from typing import Final

import msgspec

_KEY: Final = re.compile(r"-- KEYS\[(\d+)(\.\.\.)?\] (\w+) — \S")
_REQUEST: Final = re.compile(r"^-- Request: (\w+)$", re.MULTILINE)


class Header(msgspec.Struct, frozen=True):
    """The header of a script: the names of its store keys, whether the last name repeats, and its request."""

    keys: tuple[str, ...]
    more_keys: bool
    request: str


def parse_header(source: str) -> Header:
    """Read the header of a script.

    Raises:
        ValueError: a line is missing, out of order, or documents what is not there.
    """
    names: list[str] = []
    more = False
    comments = [line for line in source.splitlines() if line.startswith("--")]
    for line in comments:
        match = _KEY.match(line)
        if match is None:
            continue
        number, repeats, name = match.groups()
        if more or int(number) != len(names) + 1:
            raise ValueError(f"KEYS[{number}] is out of order")
        names.append(name)
        more = bool(repeats)
    if not any(line.startswith("-- Returns ") for line in comments):
        raise ValueError("the header does not say what the script returns")
    requests = _REQUEST.findall(source)
    if len(requests) != 1:
        raise ValueError("the header does not name one request")
    return Header(tuple(names), more, requests[0])
