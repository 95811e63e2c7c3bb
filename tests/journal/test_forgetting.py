"""What is left of entries when a member is erased."""

from typing import Any

import msgspec
import pytest

from live.journal.forgetting import without
from live.journal.log.entries import Head


def without_b(kind: str, body: object) -> Any:
    """A body without the member `b`, decoded; None if nothing changes."""
    encoded = msgspec.msgpack.encode(body)
    found = without(Head(kind, 0, "1-0", 0, "", ""), encoded, lambda member: member == "b")
    return None if found is None else msgspec.msgpack.decode(found)


def test_every_other_event_of_a_batch_keeps_its_place() -> None:
    """The share of each producer and the list of events keep their order. Only what names the member goes."""
    groups = [
        {"members": ["a"], "amounts": [1]},
        {
            "members": ["a", "b", "c"], "amounts": [1, 2, 3], "orders": [7, 8, 9], "metadata": ["x", "y", "z"],
            "parts": [[5, [0, 1, 1, 2]], [6, [2, 3, 1, 4]]],
        },
    ]  # fmt: skip
    events = {"members": ["b", "a"], "amounts": [4, 5], "times": [1, 2]}
    assert without_b("add", {"groups": groups, "events": events, "reason": "for b", "held": 1, "writer": "w"}) == {
        "groups": [
            groups[0],
            {
                "members": ["a", "", "c"], "amounts": [1, 0, 3], "orders": [7, 0, 9], "metadata": ["x", "", "z"],
                "parts": [[5, [0, 1, 1, 0]], [6, [2, 3, 1, 0]]],
            },
        ],
        "events": {"members": ["", "a"], "amounts": [0, 5], "times": [1, 2]},
        "reason": "", "writer": "w",
    }  # fmt: skip
    events["members"] = ["a", "b"]
    assert without_b("add", {"events": events}) == {
        "groups": [], "events": {"members": ["a", ""], "amounts": [4, 0], "times": [1, 2]}
    }  # fmt: skip
    assert without_b("add", {"groups": groups[:1], "events": {"members": ["a"], "amounts": [1]}, "reason": "a"}) is None


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("tags", [["", "a", 1], ["", "b", 2]], [["", "a", 1]]),
        ("tags", [["", "a", 1]], None),
        ("hide", {"member": "b", "on": 1}, {"member": "", "on": 1}),
        ("enter", {"member": "b", "metadata": "x"}, {"member": "", "metadata": ""}),
        ("enter", {"member": "a", "metadata": "x"}, None),
        (
            "mend", {"kind": "scores", "names": ["a", "b"], "values": ["x", "y"], "amounts": [1, 2]},
            {"kind": "scores", "names": ["a", ""], "values": ["x", ""], "amounts": [1, 0]},
        ),
        ("mend", {"kind": "votes", "names": ["b"]}, None),
        ("mend", {"kind": "scores", "names": ["a"]}, None),
        ("begin", {"member": "b"}, None),
    ],
)  # fmt: skip
def test_an_entry_names_no_erased_member(kind: str, body: object, expected: object) -> None:
    """An entry that does not name the member stays unchanged."""
    assert without_b(kind, body) == expected


def test_a_board_is_adopted_without_the_member() -> None:
    """The member leaves the flat lists of slots, rankings, contestants, hidden members and events."""
    logged = ["\0" * 8 + f"{amount} {member}" for member, amount in (("a", 1), ("b", 2))]
    held = {
        "slots": [["0", ["a", "1", "b", "2"]], ["60", ["b", "3"]]],
        "tables": [["", ["b", "1", "c", "2"], ["b", "x"], {}]],
        "entrants": ["b", "y", "a", "z"],
        "hidden": ["a", "b"],
        "log": [logged[0], "10", logged[1], "11"],
    }
    assert without_b("adopt", held) == {
        "slots": [["0", ["a", "1"]], ["60", []]],
        "tables": [["", ["c", "2"], [], {}]],
        "entrants": ["a", "z"],
        "hidden": ["a"],
        "log": [logged[0], "10"],
    }
    nothing = {"slots": [["0", ["a", "1"]]], "tables": [], "entrants": [], "hidden": ["a"], "log": []}
    assert without_b("adopt", nothing) is None
