"""Strict requests: a board counts all entries of one, or none."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from live.domain.event import Entry, Extra

WITHHELD: Final = "not_counted"
_DUPLICATE: Final = "duplicate"


def withheld_by(strict: Sequence[range], known: Mapping[int, str], planned: Mapping[int, str]) -> frozenset[int]:
    """Return the entries that must not count because another entry of their range is refused.

    `known` are the codes with which the store has refused entries, and `planned` those of the plan, by index. A
    duplicate that the store found was counted before, so it is no refusal. A duplicate within the plan counts if the
    entry that it repeats does not, so it is withheld too.
    """
    found: set[int] = set()
    for indexes in strict:
        codes = {code for index in indexes if (code := known.get(index) or planned.get(index))}
        if codes - {_DUPLICATE}:
            found.update(i for i in indexes if i not in known and planned.get(i, WITHHELD) in {WITHHELD, _DUPLICATE})
    return frozenset(found)


def refusing(entry: Entry) -> Entry:
    """Return an entry that its board refuses, unless the board has counted it before."""
    key, amount, time, identity, extra = entry
    return (key, amount, time, identity, msgspec.structs.replace(extra or Extra(), refused=WITHHELD))
