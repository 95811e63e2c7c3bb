"""The callers of scripts send what the headers document."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from live.boards.admin import BoardAdmin
from live.boards.definitions import read_board
from live.domain.board import Board
from live.domain.choices import Votes
from live.domain.event import Extra, make_entry
from live.domain.item import Item
from live.domain.producer import Scope
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.journal.log.entries import Erase, content
from live.journal.state.difference import ContentsDifference
from live.maintenance.swap import Swapping
from live.settings import Settings
from live.store.board.batch import decode_batch
from live.store.board.journal_stream import trim
from live.store.board.keys import Keys, Table
from live.store.board.ledger import Ledger
from live.store.board.manage.erasure import erase_digests, forget_member, read_held
from live.store.board.manage.lifecycle import renew
from live.store.board.manage.mending import Mending
from live.store.board.manage.swap import Beside, Write
from live.store.board.pieces import Place, read_piece
from live.store.board.read.contestants import list_contestants
from live.store.board.read.slots import read_slots
from live.store.board.reign import confirm
from live.store.board.requests import MendRequest
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script
from live.store.registry.audit_trail import AuditTrail, entry_of
from live.store.registry.items import Items
from live.store.registry.presence import Presence
from live.store.registry.processes import Processes
from live.store.registry.producers import ProducerStore
from live.store.registry.rate_credit import CreditStore
from live.store.registry.sessions import SessionStore
from tests.harness.boards import built, rolling_board, select_page
from tests.harness.folded import Folded, Following
from tests.harness.scripts import SOURCES, connected
from tests.harness.settings import fresh_settings
from tests.store.connection.headers import parse_header

HOUR = 3_600_000
BOARDS = [
    rolling_board(clock="event"),
    rolling_board(clock="event", board="first", ties="first"),
    built(id="hot", title="hot", window=Sliding(7 * 3600), clock="event", ranks="dense"),
    built(id="hours", title="hours", window=Periods(unit="hour", keep=9), clock="event", operator="best", cap=2),
    built(id="sum", title="sum", window=Periods(unit="hour", last=9), clock="event", ties="key", ranks="dense"),
    built(id="set", title="set", window=Forever(), clock="event", operator="set", sort_order="asc"),
    built(id="vote", title="vote", window=Forever(), clock="event", votes=Votes(per_key=99, registered=True)),
]


class Call(NamedTuple):
    """One call of a script."""

    script: Script[Any]
    keys: Sequence[str]
    request: Any


@pytest.fixture
def recorded_calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of scripts that reach the store."""
    calls: list[Call] = []
    command = Script.command

    def noting(script: Script[Any], keys: Sequence[str], request: Any) -> tuple[Word, ...]:
        calls.append(Call(script, keys, request))
        return command(script, keys, request)

    monkeypatch.setattr(Script, "command", noting)
    return calls


async def test_callers_send_what_the_headers_document(valkey_url: str, recorded_calls: list[Call]) -> None:
    """Every script really runs, with the request and as many store keys as its header says.

    The store keys share a hash tag.
    """
    settings = fresh_settings(valkey_url, rotation_step=1)
    async with connected(valkey_url, settings) as client:
        for board in BOARDS:
            await drive(client, Ledger(client, board, settings))
        record, _ = await ProducerStore(client).add("shop", Scope())
        await CreditStore(client).take(record.producer(1), 0, 1, 1)
        await watch(Presence(client))
        await create_and_delete(client, settings)
        await Processes(client).beat()
        await journal(client, settings)
        await AuditTrail(client).add(entry_of("operator", "hidden", key="a"))
        await AuditTrail(client).redact("a".__eq__)
        await Items(client, 1).put([Item("a", "A")])
        await Items(client, 1).delete("a")
        await SessionStore(client).find("none", is_use=True)

    known = [
        {name}
        for name in (
            ":producers",
            "rate:shop",
            ":boards",
            ":items",
            ":processes",
            "brief",
            "again",
            ":sessions",
        )
    ]
    known += [{board.id} for board in BOARDS]
    for script, keys, request in recorded_calls:
        header = parse_header(script.source)
        assert type(request) is script.request
        assert fits(len(keys), header.keys, more=header.more_keys)
        assert {key.removeprefix(f"{settings.key_prefix}:{{").partition("}")[0] for key in keys} in known
    assert {script.name for script, _, _ in recorded_calls} == SOURCES.keys()


def fits(count: int, names: tuple[str, ...], *, more: int) -> bool:
    """Whether the number of store keys fits the header; with `more`, the last name may repeat."""
    return count >= len(names) - more if more else count == len(names)


async def drive(client: Store, ledger: Ledger) -> None:
    """Run every script of a ledger, in all the ways in which it can be called."""
    ann = Extra("ann", b'{"a":1}')
    if ledger.state.board.votes:
        await client.hset(ledger.state.keys.entrants, mapping=dict.fromkeys("abc", b"{}"))
    await ledger.writer.add(
        [make_entry(member, amount, at, None, ann) for member, amount, at in (("a", 2, 0), ("b", 1, HOUR))]
    )
    await ledger.writer.add([make_entry("b", -1, HOUR, None, ann), make_entry("c", 3, HOUR, None, ann)])
    await ledger.writer.add([make_entry("c", 1, 40 * HOUR, None, ann)])
    await ledger.writer.add([make_entry("c", 1, 40 * HOUR, bytes(16), ann), make_entry("d", 1, 40 * HOUR, None, ann)])
    wait = None
    while wait is None:
        wait = await ledger.rotator.rotate()
    page = await ledger.reader.read(5)
    assert page.last is not None
    await select_page(ledger.reader, "after", page.last, 5)
    await select_page(ledger.reader, "before", page.last, 5)
    await select_page(ledger.reader, "score", (1, ""), 5)
    await ledger.reader.find("c", 1)
    await ledger.reader.places([("c", 1), ("none", 1)])
    await list_contestants(ledger.reader, None, 5)
    if isinstance(ledger.state.board.window, Rolling):
        await read_slots(ledger.state, ["c", "none"], 5)
    await ledger.baseline.keep()
    await ledger.moderation.enter("e", b"{}")
    await ledger.moderation.withdraw("e")
    await ledger.moderation.hide("c", hidden=True)
    await ledger.moderation.hide("c", hidden=False)
    await forget_member(client, ledger.state.board, ledger.state.keys, "d", [], b"")
    await read_piece(ledger.state, Place("hidden", ledger.state.keys.hidden))


async def journal(client: Store, settings: Settings) -> None:
    """Begin the journal of a board that has data, erase somebody, drop what is in SQL, and restore another board."""
    ledger = Ledger(client, BOARDS[0], msgspec.structs.replace(settings, journal="sqlite"))
    await ledger.state.open()
    folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
    await folded.read()
    held = await read_held(client, folded.keys)
    assert held is not None
    await erase_digests(client, folded.keys, held, [bytes(16)], msgspec.msgpack.encode(Erase(key=b"", digests=[])))
    await trim(client, folded.keys, folded.epoch, folded.last, 1)
    assert await confirm(client, folded.keys, folded.epoch, "") is None
    beside, difference = await Beside.begin(ledger.state), ContentsDifference(BOARDS[0], folded.keys)
    swapping = Swapping(ledger.state, beside, cast("Any", Following(folded)), difference)
    await swapping.load()
    await swapping.finish()
    mending = Mending(client, folded.keys, folded.epoch)
    await folded.read()
    await mending.begin(folded.link)
    await mending.write([Write("SADD", folded.keys.seen(0), [bytes(16)])])
    await mending.finish(MendRequest(clock=1, offset=1, fields=["edition", "1"]))
    await folded.load_as(BOARDS[0], Keys(settings.key_prefix, "again"), "2")


async def watch(presence: Presence) -> None:
    """Report viewers of a board, count them, and leave."""
    await presence.report({"posts": 2})
    assert await presence.count("posts") == 2
    await presence.leave()


async def create_and_delete(client: Store, settings: Settings) -> None:
    """Create a board, freeze it, read it, and delete it."""
    board_admin = BoardAdmin(client, settings)
    await board_admin.put("brief", {"idle_ttl": "1s"}, "ann")
    await board_admin.patch("brief", {"frozen": True}, "ann")
    definition = (await board_admin.definitions.load()).boards["brief"]
    await Ledger(client, read_board("brief", definition.choices), settings, born=definition.epoch).state.use()
    assert await board_admin.expire("brief", definition.epoch, 1) is not None
    await board_admin.delete("brief", "ann")
    await renew(client, Keys(settings.key_prefix, "brief"), "1")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.id)
async def test_a_batch_is_sent_with_all_its_parts(valkey_url: str, board: Board, recorded_calls: list[Call]) -> None:
    """Each group says where its store keys are, and its lists have an entry for each of its members."""
    settings = fresh_settings(valkey_url)
    async with connected(valkey_url, settings) as client:
        ledger = Ledger(client, board, settings)
        if board.votes:
            await client.hset(ledger.state.keys.entrants, mapping=dict.fromkeys(("k0", "k1", "k2"), b"{}"))
        ann = Extra("ann", b'{"a":1}')
        await ledger.writer.add([make_entry(f"k{i % 3}", i, i * HOUR, bytes([i] * 16), ann) for i in range(1, 8)])

    own, (_, keys, request) = ledger.state.keys, recorded_calls[-1]
    batch, place = decode_batch(content(request.batch)), 8
    identities = batch.identities
    assert identities is not None
    assert bytes(identities.all).endswith(b"".join(b"\xb0" + bytes([i] * 16) for i in range(1, 8)))
    for group in batch.groups:
        table = Table(own.channel, group.suffix).all
        assert group.suffix == (f":{group.start}" if board.window.tables else "")
        assert keys[place : place + 6] == [own.slot(group.start), *table]
        place += 6
        count = len(set(group.members))
        assert len(group.members) == len(group.amounts) == count
        assert len(group.orders) == (0 if board.ties == "key" else count)
        assert len(group.metadata) == (0 if board.operator == "incr" else count)
    assert keys[place:] == [own.seen(identities.bucket - number * batch.span) for number in range(3)]
    votes = [group.votes for group in batch.groups if group.votes]
    assert sum(len(vote.actors) for vote in votes) == (7 if board.votes else 0)
    assert batch.rules == board.rules
    events = batch.events
    assert (events is None) == (not isinstance(board.window, Sliding))
    assert events is None or list(map(len, msgspec.structs.astuple(events))) == [7, 7, 7]
