"""The scripts: a header documents what the source uses, and what the callers send."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest
from redis.exceptions import ResponseError

import live.store
from live.boards.admin import BoardAdmin
from live.boards.definition import read_board
from live.domain.board import Board, Boards, Votes
from live.domain.event import Extra, make_entry
from live.domain.item import Item
from live.domain.producer import Scope
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.errors import EpochLostError
from live.settings import Settings
from live.store.board.audit import AUDIT, FIX_TOTALS, Auditor
from live.store.board.beginnings import DELETE_KEYS, EXPIRE, RENEW, UPDATE, renew
from live.store.board.handover import TRIM, trim
from live.store.board.keys import Keys, SystemKeys, Table
from live.store.board.ledger import Ledger
from live.store.board.mending import MEND, BoardMender, Correction, Value
from live.store.board.pieces import PIECE, read_piece
from live.store.board.requests import rules_of
from live.store.board.restore import RESTORE
from live.store.board.slots import read_slots
from live.store.board.state import SCRIPTS
from live.store.connection.client import Store, connect
from live.store.connection.line import Word
from live.store.connection.scripts import Script, Text, text, texts
from live.store.connection.sources import load
from live.store.registry.definitions import CHANGES, DEFINE
from live.store.registry.items import PUT_ITEMS, Items
from live.store.registry.leases import GCRA, LeaseStore
from live.store.registry.presence import PRESENT, VIEWERS, Presence
from live.store.registry.processes import BEAT, Processes
from live.store.registry.producers import REGISTER, ProducerStore
from live.store.registry.turn import HOLD, Turn
from tests.harness.boards import rolling_board
from tests.harness.folded import Folded
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.store.connection.headers import Header, parse_header

FOLDER = Path(live.store.__file__).parent / "lua"
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.lua"))}
PARTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((FOLDER / "lib").glob("*.lua"))}
BEGINNINGS = (UPDATE, EXPIRE, DELETE_KEYS, RENEW, DEFINE, CHANGES, RESTORE, TRIM, PIECE, MEND)
OTHERS = (AUDIT, BEAT, FIX_TOTALS, REGISTER, GCRA, PRESENT, PUT_ITEMS, VIEWERS, HOLD)
USED = {script.name: script for script in (*msgspec.structs.astuple(SCRIPTS), *BEGINNINGS, *OTHERS)}
HOUR = 3_600_000
BOARDS = [
    rolling_board(clock="event"),
    rolling_board(clock="event", board="first", ties="first"),
    Board(id="hot", title="hot", window=Sliding(7 * 3600), clock="event", ranks="dense"),
    Board(id="hours", title="hours", window=Periods(unit="hour", keep=9), clock="event", operator="best", cap=2),
    Board(id="sum", title="sum", window=Periods(unit="hour", last=9), clock="event", ties="key", ranks="dense"),
    Board(id="set", title="set", window=Forever(), clock="event", operator="set", sort_order="asc"),
    Board(id="vote", title="vote", window=Forever(), clock="event", votes=Votes(per_key=99, registered=True)),
]
GOOD = "-- Does it.\n-- KEYS[1] a — hash: it\n-- Request: Plain\n-- Returns {'ok'}\nreturn {KEYS[1]}\n"


class Plain(msgspec.Struct):
    """A request with one field."""

    word: str = ""


class Call(NamedTuple):
    """One call of a script."""

    script: Script[Any]
    keys: Sequence[str]
    request: Any


@pytest.fixture
def recorded_calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of scripts, which are all really made."""
    calls: list[Call] = []
    command = Script.command

    def noting(script: Script[Any], keys: Sequence[str], request: Any) -> tuple[Word, ...]:
        calls.append(Call(script, keys, request))
        return command(script, keys, request)

    monkeypatch.setattr(Script, "command", noting)
    return calls


@asynccontextmanager
async def connected(url: str, settings: Settings) -> AsyncIterator[Store]:
    """A client of a store."""
    client = connect(url, settings)
    yield client
    await client.aclose()


def code_of(source: str) -> str:
    """A script without its comments."""
    return "\n".join(line.split("--")[0] for line in source.splitlines())


@pytest.mark.parametrize("name", SOURCES)
def test_a_header_names_every_store_key_that_the_source_uses(name: str) -> None:
    """They are in order, under the names of the code. The header says where the source finds the others."""
    header, code = parse_header(SOURCES[name]), code_of(SOURCES[name])
    alone = header.keys[: len(header.keys) - header.more_keys]
    assert set(alone) <= set(re.findall(r"\w+", code))
    assert len(set(header.keys)) == len(header.keys)
    (named,) = re.findall(r"^local ([\w, ]+) = (?:KEYS|unpack\(KEYS|KEYS\[1\])", code, re.MULTILINE)
    assert tuple(named.split(", "))[: len(alone)] == alone
    (last,) = re.findall(r"unpack\(KEYS, 1, (\d+)\)", code) or [str(len(alone))]
    assert int(last) == len(alone)


def fields_of(kind: Any) -> Iterator[tuple[str, str]]:
    """The fields of a request and of its parts: the struct, and the field."""
    for field in msgspec.structs.fields(kind):
        yield kind.__name__, field.name
        for part in (field.type, *get_args(field.type)):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield from fields_of(part)


FOR_JOURNAL = {"producers", "parts"}  # fields that scripts pass on to the journal unread


@pytest.mark.parametrize("name", SOURCES)
def test_a_request_has_the_fields_that_its_script_reads(name: str) -> None:
    """No more and no fewer, apart from what only the journal keeps. The header names the request."""
    kind = USED[name].request
    assert parse_header(SOURCES[name]).request == kind.__name__
    code, fields = code_of(load(name)), set(kind.__struct_fields__) - FOR_JOURNAL
    assert read_from_request(code_of(SOURCES[name])) <= fields <= read_from_request(code)
    assert re.findall(r"\bARGV\b.*", code) in (["ARGV[1])"], ["ARGV[1]"])


def read_from_request(code: str) -> set[str]:
    """The fields of the request that some code reads."""
    return set(re.findall(r"\brequest\.(\w+)", code))


def test_every_field_of_a_part_of_a_request_is_read() -> None:
    """At least one script that receives it reads it."""
    sent: dict[tuple[str, str], str] = {}
    for name, script in USED.items():
        for field in fields_of(script.request):
            sent[field] = sent.get(field, "") + code_of(load(name))
    unread = [field for field, code in sent.items() if not re.search(rf"\.{field[1]}\b", code)]
    assert [field for field in unread if field[1] not in FOR_JOURNAL] == []


def test_every_script_has_a_caller() -> None:
    """No file is unused, and each script runs under its own name."""
    assert USED.keys() == SOURCES.keys()
    assert {name: script.source for name, script in USED.items()} == {name: load(name) for name in SOURCES}
    assert len({script.source for script in USED.values()}) == len(USED)


def included(source: str) -> list[str]:
    """The parts that a source includes."""
    return re.findall(r"--@include (\w+)", source)


def test_a_script_is_its_file_with_its_includes() -> None:
    """Every part is used, once in a script, and no include is left."""
    assert {name for source in SOURCES.values() for name in included(source)} == PARTS.keys()
    for name, source in SOURCES.items():
        parts = included(source)
        assert len(set(parts)) == len(parts)
        loaded = load(name)
        assert included(loaded) == []
        assert all(PARTS[part] in loaded for part in parts)
        assert len(loaded) == len(source) + sum(len(PARTS[part]) - len(f"--@include {part}\n") for part in parts)


FLAGS = {
    "#!lua": {
        *("add", "adopt", "baseline", "create", "enter", "fix_totals", "gcra", "hold", "mend", "put_items", "restore"),
    },
    "#!lua flags=no-writes": {"changes", "piece", "places", "read", "slots", "viewers"},
    # They free memory, operators need them to free memory, or they only replace one field with another.
    "#!lua flags=allow-oom": {
        *(
            "audit",
            "beat",
            "define",
            "delete_keys",
            "expire",
            "expire_events",
            "hide",
            "open",
            "present",
            "register",
            "renew",
        ),
        *("rotate", "rotate_period", "touch", "trim", "update", "withdraw"),
    },
}


def test_every_script_declares_its_flags() -> None:
    """They are in the first line. Only scripts without any writing command are declared read-only."""
    first = {name: source.partition("\n")[0] for name, source in SOURCES.items()}
    assert first == {name: line for line, names in FLAGS.items() for name in names}
    writes = r"'(H?SET|HSETNX|HDEL|HINCRBY|ZADD|ZREM|SADD|UNLINK|RENAME|PUBLISH|XADD|XTRIM|P?EXPIRE(AT)?)'"
    reading = {name for name in SOURCES if not re.search(writes, load(name))}
    assert reading == FLAGS["#!lua flags=no-writes"]


async def refused(store: Store, script: Script[Any]) -> str:
    """Why the store refuses a script as a whole; empty when it runs the script."""
    try:
        await store.line.call("EVAL", script.source, 0, "no request")
    except ResponseError as error:
        return "" if "script:" in str(error) else str(error)  # it ran, and failed because it has no request
    return ""


async def test_the_store_refuses_writing_scripts_as_a_whole(own_store: StoreProcess) -> None:
    """Full memory refuses scripts that need memory, and a replica all that write. Scripts that read always run."""
    async with connected(own_store.url, fresh_settings(own_store.url)) as client:
        for name, script in USED.items():
            assert await refused(client, script) == "", name
        await client.config_set("maxmemory", 1)
        for line, names in FLAGS.items():
            for name in names:
                assert ("maxmemory" in await refused(client, USED[name])) is (line == "#!lua"), name
        await client.config_set("maxmemory", 0)
        await client.replicaof("127.0.0.1", 1)
        for line, names in FLAGS.items():
            for name in names:
                assert ("read only replica" in await refused(client, USED[name])) is ("no-writes" not in line), name


@pytest.mark.parametrize("name", PARTS)
def test_a_part_uses_only_names(name: str) -> None:
    """It reads no KEYS or ARGV by position, includes nothing, and defines only its own names."""
    assert not re.search(r"\b(KEYS|ARGV)\b", code_of(PARTS[name]))
    assert included(PARTS[name]) == []
    assert not re.findall(r"^(?!local |if |for .+ do$|  |end|\s*$).+", code_of(PARTS[name]), re.MULTILINE)


async def test_callers_send_what_the_headers_document(valkey_url: str, recorded_calls: list[Call]) -> None:
    """Every script really runs, with its request and as many store keys as its header says, all with one tag."""
    settings = fresh_settings(valkey_url, rotation_step=1)
    async with connected(valkey_url, settings) as client:
        for board in BOARDS:
            auditor = Auditor(client, board.id, settings.key_prefix, lambda *_: None)
            await drive(client, Ledger(client, board, settings), auditor)
        record, _ = await ProducerStore(client, settings.key_prefix).add("shop", Scope())
        await LeaseStore(client, settings.key_prefix).take(record.producer(1, 1), 0, 1, 1)
        await watch(Presence(client, settings.key_prefix))
        await create_and_delete(client, settings)
        await Turn(client, SystemKeys(settings.key_prefix).demo).ask()
        await Processes(client, settings.key_prefix).beat()
        await journal(client, settings)
        await Items(client, settings.key_prefix, 1).put([Item("a", "A")])

    known = [
        {name} for name in (":producers", "rate:shop", ":boards", ":demo", ":items", ":processes", "brief", "again")
    ]
    known += [{board.id} for board in BOARDS]
    for script, keys, request in recorded_calls:
        header = parse_header(script.source)
        assert type(request) is script.request
        assert fits(len(keys), header.keys, more=header.more_keys)
        assert {key.removeprefix(f"{settings.key_prefix}:{{").partition("}")[0] for key in keys} in known
    assert {script.name for script, _, _ in recorded_calls} == SOURCES.keys()


def fits(count: int, names: tuple[str, ...], *, more: int) -> bool:
    """Whether the number of store keys fits the header; the last one may repeat."""
    return count >= len(names) - more if more else count == len(names)


async def drive(client: Store, ledger: Ledger, auditor: Auditor) -> None:
    """Run every script of a ledger, in all the ways in which it can be called."""
    ann = Extra("ann", b'{"a":1}')
    if ledger.state.board.votes:
        await client.hset(ledger.state.keys.entrants, mapping=dict.fromkeys("abc", b"{}"))
    await ledger.writer.add(
        [make_entry(key, amount, at, None, ann) for key, amount, at in (("a", 2, 0), ("b", 1, HOUR))]
    )
    await ledger.writer.add([make_entry("b", -1, HOUR, None, ann), make_entry("c", 3, HOUR, None, ann)])
    await ledger.writer.add([make_entry("c", 1, 40 * HOUR, None, ann)])
    await ledger.writer.add([make_entry("c", 1, 40 * HOUR, bytes(16), ann), make_entry("d", 1, 40 * HOUR, None, ann)])
    wait = None
    while wait is None:
        wait = await ledger.rotator.rotate()
    page = await ledger.reader.read(5)
    assert page.last is not None
    await ledger.reader.read(5, after=page.last)
    await ledger.reader.read(5, before=page.last)
    await ledger.reader.read_score(1, 5)
    await ledger.reader.find("c", 1)
    await ledger.reader.places([("c", 1), ("none", 1)])
    if isinstance(ledger.state.board.window, Rolling):
        await read_slots(ledger.state, ["c", "none"], 5)
    await ledger.baseline.keep()
    await ledger.moderation.enter("e", b"{}")
    await ledger.moderation.withdraw("e")
    await ledger.moderation.hide("c", hidden=True)
    await ledger.moderation.hide("c", hidden=False)
    await client.hset(ledger.state.keys.meta, f"total{ledger.state.table(page.slot).suffix}", 99)
    await auditor.audit(repair=True)
    await correct(ledger)


async def correct(ledger: Ledger) -> None:
    """Read a piece of a slot, and correct a value in it."""
    state = ledger.state
    (start, *_) = [int(start) for start in await state.call("ZRANGE", state.keys.slots, 0, -1)]
    piece = await read_piece(state, state.keys.slot(start))
    ((name, held), *_) = piece.pairs
    correction = Correction(
        kind="slot", key=state.keys.slot(start), start=start, suffix=state.table(start).suffix,
        adds_up=state.board.operation == "incr", compared=piece.offset, newest=piece.newest,
        values=[Value(name, held, b"1")],
    )  # fmt: skip
    await BoardMender(state).mend(correction, teach=False)


async def journal(client: Store, settings: Settings) -> None:
    """Begin the journal of a board that has data, drop what is in SQL, and restore the board under another id."""
    ledger = Ledger(client, BOARDS[0], msgspec.structs.replace(settings, journal="sqlite"))
    await ledger.state.open()
    folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
    await folded.read()
    await trim(client, folded.keys, folded.epoch, folded.last, 1)
    await folded.rebuild(BOARDS[0], Keys(settings.key_prefix, "again"), "2")


async def watch(presence: Presence) -> None:
    """Watch a board for a while."""
    await presence.report({"posts": 2})
    assert await presence.count("posts") == 2
    await presence.leave()


async def create_and_delete(client: Store, settings: Settings) -> None:
    """Create a board at run time, freeze it, read it, and delete it."""
    board_admin = BoardAdmin(client, settings, Boards([]))
    await board_admin.put("brief", {"idle_ttl": "1s"}, "ann")
    await board_admin.patch("brief", {"frozen": True}, "ann")
    definition = (await board_admin.definitions.load()).boards["brief"]
    await Ledger(client, read_board("brief", definition.choices), settings, born=definition.epoch).state.use()
    assert await board_admin.expire("brief", definition.epoch, 1) is not None
    await board_admin.delete("brief", "ann")
    await renew(client, Keys(settings.key_prefix, "brief"), "1")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.id)
async def test_a_batch_is_sent_with_all_its_parts(valkey_url: str, board: Board, recorded_calls: list[Call]) -> None:
    """The store keys of each group are where the group says, and its lists belong to its members."""
    settings = fresh_settings(valkey_url)
    async with connected(valkey_url, settings) as client:
        ledger = Ledger(client, board, settings)
        if board.votes:
            await client.hset(ledger.state.keys.entrants, mapping=dict.fromkeys(("k0", "k1", "k2"), b"{}"))
        ann = Extra("ann", b'{"a":1}')
        await ledger.writer.add([make_entry(f"k{i % 3}", i, i * HOUR, bytes([i] * 16), ann) for i in range(1, 8)])

    own, (_, keys, request) = ledger.state.keys, recorded_calls[-1]
    identities = request.identities
    assert bytes(identities.all).endswith(b"".join(b"\xb0" + bytes([i] * 16) for i in range(1, 8)))
    assert identities.counted == 7
    buckets = [own.seen(identities.bucket - number * request.span) for number in range(3)]
    assert keys[identities.newest - 1 : identities.oldest + 1] == buckets
    for group in request.groups:
        table = Table(own.channel, group.suffix).all
        assert group.suffix == (f":{group.start}" if board.window.tables else "")
        assert keys[group.keys - 1 : group.keys + 5] == [own.slot(group.start), *table]
        count = len(set(group.members))
        assert len(group.members) == len(group.amounts) == count
        assert len(group.orders) == (0 if board.ties == "key" else count)
        assert len(group.metadata) == (0 if board.operator == "incr" else count)
    votes = [group.votes for group in request.groups if group.votes]
    assert sum(len(vote.actors) for vote in votes) == (7 if board.votes else 0)
    assert request.rules == rules_of(board)
    events = request.events
    assert (events is None) == (not isinstance(board.window, Sliding))
    assert events is None or list(map(len, msgspec.structs.astuple(events))) == [7, 7, 7, 0]


async def test_a_missing_script_is_loaded(valkey_url: str) -> None:
    """A store that does not know the hash receives the source, once."""
    client = connect(valkey_url, fresh_settings(valkey_url))
    script = Script("mine", Plain, GOOD + f"-- {fresh_settings(valkey_url).key_prefix}")
    assert await script(client, ["a"], Plain()) == [b"a"]
    assert await client.script_exists(script_hash(script)) == [True]
    assert await script(client, ["b"], Plain()) == [b"b"]
    await client.aclose()


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65535, 65536])
async def test_bytes_are_sent_unchanged(any_store: str, size: int) -> None:
    """They need not be text in any encoding."""
    content = bytes(range(128, 256)) * (size // 128 + 1)

    class Bytes(msgspec.Struct):
        one: Text
        many: Text

    client = connect(any_store, fresh_settings(any_store))
    script = Script("mine", Bytes, "local request = cmsgpack.unpack(ARGV[1]) return {request.one, request.many}")
    many = [content[:16], content[1:17]]
    assert await script(client, ["a"], Bytes(text(content[:size]), texts(many, 16))) == [content[:size], many]
    await client.aclose()


@pytest.mark.parametrize("number", [0, -1, 127, 128, -33, 2**31, -(2**31) - 1, 2**53, -(2**53), 2**53 - 1, 0.5, 1e9])
async def test_numbers_are_exact(any_store: str, number: float) -> None:
    """Whole numbers within ±2^53, and fractions. None is sent as a missing field."""

    class Number(msgspec.Struct):
        number: float
        none: None = None

    client = connect(any_store, fresh_settings(any_store))
    source = (
        "local request = cmsgpack.unpack(ARGV[1]) return {string.format('%.17g', request.number), type(request.none)}"
    )
    reply, none = await Script("mine", Number, source)(client, ["a"], Number(number))
    assert (float(reply), none) == (number, b"nil")
    await client.aclose()


def script_hash(script: Script[Any]) -> str:
    """The name under which a store holds a script."""
    return hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


async def test_scripts_refuse_a_missing_board(valkey_url: str) -> None:
    """Only `create` creates a board."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    ledger = Ledger(client, rolling_board(), settings)
    await ledger.state.open()
    await client.delete(ledger.state.keys.meta)
    with pytest.raises(EpochLostError):
        await ledger.writer.add([make_entry("a", 1, None)])
    with pytest.raises(EpochLostError):
        await ledger.rotator.rotate()
    with pytest.raises(EpochLostError):
        await ledger.reader.read(1)
    assert await Presence(client, settings.key_prefix).report({"posts": 1}) == {}
    assert [key async for key in client.scan_iter(match=f"{Keys(settings.key_prefix, 'posts').channel}*")] == []
    await client.aclose()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("-- KEYS[1]", "-- KEYS[2]", r"KEYS\[2\] is out of order"),
        ("-- Request", "-- KEYS[2...] b — many: of them\n-- KEYS[3] c — x\n-- Request", r"KEYS\[3\] is out of order"),
        ("-- Request: Plain\n", "", "does not name one request"),
        ("-- Returns {'ok'}\n", "", "does not say what the script returns"),
    ],
)
def test_an_invalid_header_is_refused(before: str, after: str, message: str) -> None:
    """A missing, repeated or misplaced number, and a missing request or reply."""
    assert before in GOOD
    with pytest.raises(ValueError, match=message):
        parse_header(GOOD.replace(before, after))


def test_a_header_is_read_completely() -> None:
    """The names in order, and whether the last one repeats."""
    source = "-- KEYS[1] a — x\n-- KEYS[2...] b — x\n-- Request: Plain\n-- Returns nothing\nreturn 1"
    assert parse_header(source) == Header(("a", "b"), more_keys=True, request="Plain")
    assert parse_header("-- Request: Plain\n-- Returns nothing\nreturn 1") == Header(
        (), more_keys=False, request="Plain"
    )


@pytest.mark.slow
async def test_a_restarted_store_receives_each_script_once(own_store: StoreProcess) -> None:
    """One event may be for many boards."""
    settings = fresh_settings(own_store.url)
    client = connect(own_store.url, settings)
    ledgers = [Ledger(client, rolling_board(board=f"b{number}"), settings) for number in range(100)]
    for ledger in ledgers:
        await ledger.state.open()
    own_store.kill()
    own_store.start()
    await asyncio.gather(*(ledger.writer.add([make_entry("a")]) for ledger in ledgers))
    stats = await client.info("commandstats")
    assert "cmdstat_eval" not in stats
    assert stats["cmdstat_evalsha"]["calls"] < 250
    await client.aclose()
