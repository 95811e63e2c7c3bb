"""What is left of entries when a member is erased."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert, select

from live.journal.forgetting import forget_in_board, without
from live.journal.log.entries import Head, compress, decompress
from live.journal.log.timelines import open_timelines
from live.journal.schema import CHECKPOINT, PERIOD, SEGMENT
from live.journal.state.snapshot import unpack
from live.journal.upkeep.checkpoints import Due, keep, make
from tests.harness.journaled import journaled


def without_b(kind: str, body: object) -> Any:
    """A body without the member `b`, decoded; None if nothing changes."""
    encoded = msgspec.msgpack.encode(body)
    found = without(Head(kind, 0, "1-0", 0, "", ""), encoded, "b")
    return None if found is None else msgspec.msgpack.decode(found)


def test_every_other_event_of_a_batch_keeps_its_place() -> None:
    """The single events of a group and the list of events keep their order. Only what names the member is removed."""
    rules = {"operation": "incr", "order": "backward"}
    place = {"start": 0, "suffix": ""}
    groups = [
        {**place, "members": ["a"], "amounts": [1]},
        {
            **place, "members": ["a", "b", "c"], "amounts": [1, 2, 3], "orders": [7, 8, 9],
            "metadata": ["x", "y", "z"],
            "events": {
                "members": [0, 1, 1, 2], "amounts": [1, 4, -2, 3], "times": [0, 9, 8, 7],
                "metadata": ["x", "u", "y", "z"], "producers": [0, 1, 0, 1],
            },
        },
    ]  # fmt: skip
    events = {"members": ["b", "a"], "amounts": [4, 5], "times": [1, 2]}
    assert without_b("add", {"rules": rules, "groups": groups, "events": events, "reason": "for b", "span": 6}) == {
        "rules": rules,
        "groups": [
            groups[0],
            {
                **place, "members": ["a", "", "c"], "amounts": [1, 0, 3], "orders": [7, 0, 9],
                "metadata": ["x", "", "z"],
                "events": {
                    "members": [0, 1, 1, 2], "amounts": [1, 0, 0, 3], "times": [0, 9, 8, 7],
                    "metadata": ["x", "", "", "z"], "producers": [0, 1, 0, 1],
                },
            },
        ],
        "events": {"members": ["", "a"], "amounts": [0, 5], "times": [1, 2]},
        "span": 6,
    }  # fmt: skip
    events["members"] = ["a", "b"]
    assert without_b("add", {"rules": rules, "events": events}) == {
        "rules": rules, "events": {"members": ["a", ""], "amounts": [4, 0], "times": [1, 2]}
    }  # fmt: skip
    events["members"] = ["a", "a"]
    assert without_b("add", {"rules": rules, "groups": groups[:1], "events": events, "reason": "a"}) is None


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("tags", [["a", 9, 1], ["b", 9, 2]], [["a", 9, 1]]),
        ("tags", [["a", 9, 1]], None),
        ("hide", {"member": "b", "on": 1}, {"member": "", "on": 1}),
        ("enter", {"member": "b", "metadata": "x"}, {"member": "", "metadata": ""}),
        ("enter", {"member": "a", "metadata": "x"}, None),
        ("begin", {"member": "b"}, None),
    ],
)  # fmt: skip
def test_an_entry_names_no_erased_member(kind: str, body: object, expected: object) -> None:
    """An entry that does not name the member stays unchanged."""
    assert without_b(kind, body) == expected


def test_a_board_is_adopted_without_the_member() -> None:
    """The member is taken out of the flat lists of slots, rankings, contestants, hidden members and events."""
    logged = ["\0" * 8 + f"{amount} {member}" for member, amount in (("a", 1), ("b", 2))]
    texts = ("parent", "edition", "shape", "secret", "newest", "latest", "bucket", "span")
    rest = {**dict.fromkeys(texts, ""), "seen": []}
    held = rest | {
        "slots": [["0", ["a", "1", "b", "2"]], ["60", ["b", "3"]]],
        "tables": [["", ["b", "1", "c", "2"], ["b", "x"], []]],
        "entrants": ["b", "y", "a", "z"],
        "hidden": ["a", "b"],
        "log": [logged[0], "10", logged[1], "11"],
    }
    assert without_b("adopt", held) == rest | {
        "slots": [["0", ["a", "1"]], ["60", []]],
        "tables": [["", ["c", "2"], [], []]],
        "entrants": ["a", "z"],
        "hidden": ["a"],
        "log": [logged[0], "10"],
    }
    nothing = rest | {"slots": [["0", ["a", "1"]]], "tables": [], "entrants": [], "hidden": ["a"], "log": []}
    assert without_b("adopt", nothing) is None


async def test_every_row_of_a_board_forgets_a_member(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries, checkpoints and archived periods from before the erasure are rewritten. Other rows stay as they are."""
    monkeypatch.setattr("live.journal.forgetting._ROWS", 1)
    async with journaled(valkey_url, tmp_path) as board:
        drainer = await board.drainer()
        for members in ("ab", "a", "b", "a"):
            await board.like(*members)
            await drainer.sweep()

        def work(connection: Any) -> None:
            (timeline,) = open_timelines(connection)
            segments = connection.scalars(select(SEGMENT.c.id).order_by(SEGMENT.c.id)).all()
            for segment in segments[:2]:
                wanted = Due(timeline, segment)
                keep(connection, wanted, *make(connection, wanted))
            named = {"start": 0, "newest": 5, "revision": 1, "offset": 0, "final": True, "life": timeline.id}
            for start, members in enumerate((["b", "a"], ["a"])):
                body = {
                    "members": members,
                    "scores": [2, 1][-len(members) :],
                    "metadata": dict.fromkeys(members, b"{}"),
                }
                packed = compress(msgspec.msgpack.encode(body))
                connection.execute(insert(PERIOD), {**named, "start": start, "crc": packed.crc, "data": packed.data})

            def forget(name: str, member: str = "b", *, dry: bool = False) -> tuple[int, int, int]:
                found = forget_in_board(connection, name, member, dry=dry)
                return found.entries, found.checkpoints, found.periods

            assert forget("other") == forget("posts", "no such member") == (0, 0, 0)
            assert [forget("posts", dry=dry) for dry in (True, False, False)] == [(2, 2, 1), (2, 2, 1), (0, 0, 0)]
            rows = connection.execute(select(PERIOD.c.crc, PERIOD.c.data).order_by(PERIOD.c.start)).all()
            left = {"members": ["a"], "scores": [1], "metadata": {"a": b"{}"}}
            assert [msgspec.msgpack.decode(decompress(row.crc, row.data)) for row in rows] == [left] * 2
            for row in connection.execute(select(CHECKPOINT)).all():
                assert unpack(decompress(row.crc, row.data)).slots.popitem()[1].keys() == {"a"}

        await board.databases[0].run(work)
        assert await board.rows_in_sql() == [("a", 3)]
        await board.databases[0].run(lambda connection: connection.execute(CHECKPOINT.delete()))
        assert await board.rows_in_sql() == [("a", 3)]
