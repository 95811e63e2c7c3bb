"""Reads the header of a script: what it says of KEYS and ARGV, for the tests to hold against the code."""

import re
from typing import Final

import msgspec

_HEADER_LINE: Final = re.compile(r"-- (KEYS|ARGV)\[(?:(\d+)(\.\.\.)?|(\.\.\.))\] (\w+) — \S")


class Header(msgspec.Struct, frozen=True):
    """What a script's header documents: the names of KEYS and of ARGV, and how many of the last of each repeat.

    The first that repeats has the number with which it begins; the next, `[...]`, begins where that one ends.
    """

    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    more_keys: int
    more_arguments: int


def parse_header(source: str) -> Header:
    """Read the header of a script.

    Raises:
        ValueError: a line is missing, out of order, or documents what is not there.
    """
    names: dict[str, list[str]] = {"KEYS": [], "ARGV": []}
    more = {"KEYS": 0, "ARGV": 0}
    comments = [line for line in source.splitlines() if line.startswith("--")]
    for line in comments:
        match = _HEADER_LINE.match(line)
        if match is None:
            continue
        kind, number, repeats, follows, name = match.groups()
        if not more[kind] if follows else more[kind] or int(number) != len(names[kind]) + 1:
            raise ValueError(f"{kind}[{number or follows}] is out of order")
        names[kind].append(name)
        more[kind] += bool(repeats or follows)
    if not any(line.startswith("-- Returns ") for line in comments):
        raise ValueError("the header does not say what the script returns")
    return Header(tuple(names["KEYS"]), tuple(names["ARGV"]), more["KEYS"], more["ARGV"])
