"""The audit log in the store."""

from typing import Any

import msgspec
import pytest

from live.domain.producer import SERVER
from live.maintenance.void import Outcome, VoidedScore
from live.store.connection.client import connect
from live.store.registry.audit_trail import (
    MOST_BYTES,
    ORIGIN,
    ActOrigin,
    AuditEntry,
    AuditTrail,
    acting,
    entry_of,
    note_command,
    redacted,
    without_members,
)
from tests.harness.settings import fresh_settings


async def test_a_large_entry_keeps_only_its_size(valkey_url: str) -> None:
    """The entry says who did what, and how many bytes it would have had. So logged acts can't fill the store."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    trail = AuditTrail(client)
    await trail.add(entry_of("ann", "titled", key="k", reason="r", before="b", after=""))
    room = MOST_BYTES - len(msgspec.json.encode(entry_of("ann", "titled", key="k", reason="r", before="b", after="")))
    for size in (room, room + 1):
        await trail.add(entry_of("ann", "titled", key="k", reason="r", before="b", after="x" * size))
    small, full, large = reversed(await trail.last(3))
    assert (small.before, small.after) == ("b", "")
    assert full.after == "x" * room
    assert (large.who, large.what, large.key, large.reason, large.before) == ("ann", "titled", "k", "r", None)
    assert large.after == {"bytes": MOST_BYTES + 1}
    await client.aclose()


async def test_an_act_of_many_steps_is_logged_when_it_begins_and_when_it_ends(valkey_url: str) -> None:
    """An interrupted act leaves an entry too.

    An act of the server itself has no origin. All entries can forget a member.
    """
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    trail = AuditTrail(client)
    ORIGIN.set(ActOrigin("192.0.2.1", "abc"))
    async with acting(trail, "me", "merged", {"a": 1}, key="k") as found:
        (begun,) = await trail.last(9)
        found["after"] = {"a": 2}
    await note_command(client, "titled", key="k")
    command, done = await trail.last(2)
    assert (begun.what, begun.before, begun.after) == ("begun", {"a": 1}, {"act": "merged"})
    assert (done.what, done.key, done.before, done.after) == ("merged", "k", {"a": 1}, {"a": 2})
    assert (done.address, done.request) == ("192.0.2.1", "abc")
    assert (command.who.partition(":")[0], command.what, command.key) == ("command", "titled", "k")
    assert entry_of(SERVER, "expired").address == ""
    assert [await trail.redact("k".__eq__) for _ in range(2)] == [3, 0]
    assert [entry.key for entry in await trail.last(9)] == ["", "", ""]
    await client.aclose()


def test_the_results_of_boards_name_no_members() -> None:
    """An erasure need not look for what is not there."""
    found = Outcome(board="posts", events=2, members=1, examples=[VoidedScore("ann", 9, 5)], fault="f", notes=["n"])
    (told,) = without_members([found])["boards"]
    assert "ann" not in str(told)
    assert told == {name: field for name, field in msgspec.to_builtins(found).items() if name != "examples"}


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"what": "hidden", "key": "ann", "before": 1, "after": 2}, {"what": "hidden"}),
        (
            {
                "what": "merged", "key": "bob", "before": {"posts": {"ann": 1, "bob": 2}},
                "after": [{"key": "ann"}, {"key": "bob"}, "ann", "cy", 3],
            },
            {
                "what": "merged", "key": "bob", "before": {"posts": {"bob": 2}},
                "after": [None, {"key": "bob"}, "", "cy", 3],
            },
        ),
        (
            {"what": "voided", "after": {"boards": [{"board": "x", "examples": [{"key": "ann"}, {"key": "bob"}]}]}},
            {"what": "voided", "after": {"boards": [{"board": "x", "examples": [None, {"key": "bob"}]}]}},
        ),
        ({"what": "repaired", "before": [{"key": "ann"}]}, {"what": "repaired", "before": [None]}),
        ({"what": "created", "key": "ann", "reason": "r"}, None),
        ({"what": "corrected", "key": "bob", "before": {"score": 1}, "reason": "r"}, None),
        ({"what": "begun", "reason": "r"}, None),
    ],
)  # fmt: skip
def test_an_entry_names_no_erased_member(fields: dict[str, Any], left: dict[str, Any] | None) -> None:
    """An erasure changes only entries about acts on the member. It also removes the reason, which may have the name."""
    entry = AuditEntry(who="me", **{"reason": "r", **fields})
    found = redacted(entry, "ann".__eq__)
    assert found == (entry if left is None else AuditEntry(who="me", **left))
    assert (found is entry) is (left is None)
