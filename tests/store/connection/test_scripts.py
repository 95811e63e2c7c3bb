"""The scripts: what a header documents is what the source uses, and what the callers send."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import live.store
from live.boards.admin import BoardAdmin
from live.boards.definition import read_board
from live.domain.board import Board, Boards, Votes
from live.domain.event import Extra, make_entry
from live.domain.producer import Scope
from live.domain.window import Forever, Periods, Sliding
from live.errors import EpochLostError
from live.settings import Settings
from live.store.board.audit import AUDIT, FIX_TOTALS, Auditor
from live.store.board.beginnings import CREATE, DELETE_KEYS, EXPIRE, RENEW, UPDATE, renew
from live.store.board.keys import Keys, SystemKeys, Table
from live.store.board.ledger import Ledger
from live.store.board.state import SCRIPTS
from live.store.connection.client import Store, connect
from live.store.connection.line import SharedLine, Word
from live.store.connection.scripts import Script
from live.store.connection.sources import load
from live.store.registry.definitions import DEFINE
from live.store.registry.leases import GCRA, LeaseStore
from live.store.registry.presence import PRESENT, Presence
from live.store.registry.producers import REGISTER, ProducerStore
from live.store.registry.turn import HOLD, Turn
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.store.connection.headers import Header, parse_header

FOLDER = Path(live.store.__file__).parent / "lua"
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.lua"))}
PARTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((FOLDER / "lib").glob("*.lua"))}
BEGINNINGS = (CREATE, UPDATE, EXPIRE, DELETE_KEYS, RENEW, DEFINE)
OTHERS = (AUDIT, FIX_TOTALS, REGISTER, GCRA, PRESENT, HOLD)
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
GOOD = "-- Does it.\n-- KEYS[1] a — hash: it\n-- ARGV[1] b — integer: how often\n-- Returns {'ok'}\nreturn {KEYS[1]}\n"


class Recorder(SharedLine):
    """A line that notes the scripts that it really runs: hash, number of keys, keys and arguments."""

    def __init__(self, store: Store, settings: Settings) -> None:
        super().__init__(store.connection_pool, settings.store_timeout)
        self.noted: list[tuple[str, int, list[Word]]] = []

    async def call(self, *words: Word) -> Any:
        """Note the call, and make it."""
        if words[0] == "EVALSHA":
            _, script, keys, *sent = words
            self.noted.append((str(script), int(keys), sent))
        return await super().call(*words)


@asynccontextmanager
async def recording(url: str, settings: Settings) -> AsyncIterator[tuple[Store, Recorder]]:
    """A client of a store, and what notes its scripts."""
    client = connect(url, settings)
    client.line = recorder = Recorder(client, settings)
    yield client, recorder
    await client.aclose()


def code_of(source: str) -> str:
    """A script without its comments."""
    return "\n".join(line.split("--")[0] for line in source.splitlines())


def numbers(kind: str, source: str) -> set[int]:
    """Which of KEYS or ARGV a script uses by number."""
    return {int(number) for number in re.findall(rf"\b{kind}\[(\d+)\]", code_of(source))}


def first_computed(kind: str, source: str) -> set[int]:
    """With which number the ones begin that a script uses by a computed index: `KEYS[4 + slot]` with 5."""
    code = code_of(source)
    begins = set()
    for index in re.findall(rf"\b{kind}\[([^\]]*[a-z][^\]]*)\]", code):
        summand = re.fullmatch(r"(\d+) \+ \w+", index)
        start = re.search(rf"\b{re.split(r'[^a-z]', index)[0]}\b[^=\n]*= (?:\{{\}}, )?(\d+)", code)
        if summand:
            begins.add(int(summand[1]) + 1)
        elif start:
            begins.add(int(start[1]))
    return begins


@pytest.mark.parametrize("name", SOURCES)
def test_a_header_documents_what_the_source_uses(name: str) -> None:
    """Each KEYS[n] and ARGV[n] is documented and used, with no number left out."""
    header = parse_header(SOURCES[name])
    for kind, names, more in (
        ("KEYS", header.keys, header.more_keys),
        ("ARGV", header.arguments, header.more_arguments),
    ):
        alone = len(names) - more
        first_repeated = {alone + 1} if more else set()
        assert numbers(kind, SOURCES[name]) - first_repeated == set(range(1, alone + 1))
        computed = first_computed(kind, SOURCES[name])
        assert alone + 1 in computed if more else not computed
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", SOURCES)
def test_a_name_in_the_header_is_the_name_in_the_source(name: str) -> None:
    """What is documented as `ranking` is called `ranking` in the code."""
    header, code = parse_header(SOURCES[name]), code_of(SOURCES[name])
    words = set(re.findall(r"\w+", code))
    alone = (
        header.keys[: len(header.keys) - header.more_keys]
        + header.arguments[: len(header.arguments) - header.more_arguments]
    )
    assert set(alone) <= words


def test_every_script_has_a_caller() -> None:
    """No file lies about that nobody runs, and each is run under its own name."""
    assert USED.keys() == SOURCES.keys()
    assert {name: script.source for name, script in USED.items()} == {name: load(name) for name in SOURCES}
    assert len({script.source for script in USED.values()}) == len(USED)


def included(source: str) -> list[str]:
    """The parts that a source takes in."""
    return re.findall(r"--@include (\w+)", source)


def test_a_script_is_its_file_with_the_parts_that_it_includes() -> None:
    """Every part is used, once in a script, and nothing is left to take in."""
    assert {name for source in SOURCES.values() for name in included(source)} == PARTS.keys()
    for name, source in SOURCES.items():
        parts = included(source)
        assert len(set(parts)) == len(parts)
        loaded = load(name)
        assert included(loaded) == []
        assert all(PARTS[part] in loaded for part in parts)
        assert len(loaded) == len(source) + sum(len(PARTS[part]) - len(f"--@include {part}\n") for part in parts)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_knows_no_places(name: str) -> None:
    """It goes by the names of the script's header, takes nothing in itself, and leaves nothing but what is its own."""
    assert not re.search(r"\b(KEYS|ARGV)\b", code_of(PARTS[name]))
    assert included(PARTS[name]) == []
    assert not re.findall(r"^(?!local |  |end|\s*$).+", code_of(PARTS[name]), re.MULTILINE)


async def test_callers_send_what_the_headers_document(valkey_url: str) -> None:
    """Every script is really run, with as many keys and arguments as its header says, on keys of one tag only."""
    settings = fresh_settings(valkey_url, rotation_step=1)
    async with recording(valkey_url, settings) as (client, recorder):
        for board in BOARDS:
            auditor = Auditor(client, board.id, settings.key_prefix, lambda *_: None)
            await drive(client, Ledger(client, board, settings), auditor)
        record, _ = await ProducerStore(client, settings.key_prefix).add("shop", Scope())
        await LeaseStore(client, settings.key_prefix).take(record.producer(1, 1), 0, 1, 1)
        await watch(Presence(client, settings.key_prefix))
        await live_and_leave(client, settings)
        await Turn(client, SystemKeys(settings.key_prefix).demo).ask()

    by_hash = {
        hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest(): script for script in USED.values()
    }
    for sha, keys, sent in recorder.noted:
        header = parse_header(by_hash[sha].source)
        assert fits(keys, header.keys, more=header.more_keys)
        assert fits(len(sent) - keys, header.arguments, more=header.more_arguments)
        tags = {str(key).removeprefix(f"{settings.key_prefix}:{{").partition("}")[0] for key in sent[:keys]}
        assert tags in (
            {":producers"},
            {"rate:shop"},
            {":boards"},
            {":demo"},
            {"brief"},
            *({board.id} for board in BOARDS),
        )
    assert {by_hash[sha].name for sha, _, _ in recorder.noted} == SOURCES.keys()


def fits(count: int, names: tuple[str, ...], *, more: int) -> bool:
    """Whether so many were sent as are documented; what repeats may stand there any number of times."""
    return count >= len(names) - more if more else count == len(names)


async def drive(client: Store, ledger: Ledger, auditor: Auditor) -> None:
    """Do everything once that a script does, in all the ways that it can be asked for."""
    ann = Extra("ann", b'{"a":1}')
    if ledger.board.votes:
        await client.hset(ledger.keys.entrants, mapping=dict.fromkeys("abc", b"{}"))
    await ledger.add([make_entry(key, amount, at, None, ann) for key, amount, at in (("a", 2, 0), ("b", 1, HOUR))])
    await ledger.add([make_entry("b", -1, HOUR, None, ann), make_entry("c", 3, HOUR, None, ann)])
    await ledger.add([make_entry("c", 1, 40 * HOUR, None, ann)])
    await ledger.add([make_entry("c", 1, 40 * HOUR, bytes(16), ann), make_entry("d", 1, 40 * HOUR, None, ann)])
    wait = None
    while wait is None:
        wait = await ledger.rotate()
    page = await ledger.read(5)
    assert page.last is not None
    await ledger.read(5, after=page.last)
    await ledger.read(5, before=page.last)
    await ledger.read_score(1, 5)
    await ledger.find("c", 1)
    await ledger.places([("c", 1), ("none", 1)])
    await ledger.enter("e", b"{}")
    await ledger.hide("c", hidden=True)
    await ledger.hide("c", hidden=False)
    await client.hset(ledger.keys.meta, f"total{ledger._table(page.slot).suffix}", 99)
    await auditor.audit(repair=True)


async def watch(presence: Presence) -> None:
    """Watch a board for a while."""
    await presence.report({"posts": 2})
    assert await presence.count("posts") == 2
    await presence.leave()


async def live_and_leave(client: Store, settings: Settings) -> None:
    """Make a board at run time, freeze it, read it, and let it go."""
    board_admin = BoardAdmin(client, settings, Boards([]))
    await board_admin.put("brief", {"idle_ttl": "1s"}, "ann")
    await board_admin.patch("brief", {"frozen": True}, "ann")
    definition = (await board_admin.definitions.load()).boards["brief"]
    await Ledger(client, read_board("brief", definition.choices), settings, born=definition.epoch).use()
    assert await board_admin.expire("brief", definition.epoch, 1) is not None
    await board_admin.delete("brief", "ann")
    await renew(client, Keys(settings.key_prefix, "brief"), "1")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.id)
async def test_the_groups_of_a_batch_are_taken_apart_whole(valkey_url: str, board: Board) -> None:
    """Keys and arguments of each group, as the header has them: what the caller sends is used up to the last."""
    settings = fresh_settings(valkey_url)
    async with recording(valkey_url, settings) as (client, recorder):
        ledger = Ledger(client, board, settings)
        if board.votes:
            await client.hset(ledger.keys.entrants, mapping=dict.fromkeys(("k0", "k1", "k2"), b"{}"))
        ann = Extra("ann", b'{"a":1}')
        await ledger.add([make_entry(f"k{i % 3}", i, i * HOUR, bytes([i] * 16), ann) for i in range(1, 8)])

    header = parse_header(SOURCES["add"])
    fixed = len(header.keys) - header.more_keys
    _, keys, sent = recorder.noted[-1]
    arguments = sent[keys:]
    buckets, identities = (int(arguments[header.arguments.index(name)]) for name in ("buckets", "n"))
    alone = header.arguments.index("identities")
    assert arguments[alone : alone + identities] == [bytes([i] * 16) for i in range(1, 8)]
    groups, tables = sent[fixed + buckets : keys], board.window.tables
    rest = arguments[alone + identities :]
    assert len(groups) % 7 == 0
    for first in range(0, len(groups), 7):
        start, suffix, count = int(rest[0]), str(rest[1]), int(rest[2])
        assert suffix == (f":{start}" if tables else "")
        table = Table(ledger.keys.channel, suffix).all
        assert groups[first : first + 7] == [ledger.keys.slot(start), *table, ledger.keys.hidden]
        members = rest[3 : 3 + count]
        assert len(set(members)) == count
        rest = rest[3 + count * (2 if board.ties == "key" else 3) :]
        described, rest = int(rest[0]), rest[1:]
        assert {int(number) for number in rest[: 2 * described : 2]} <= set(range(1, count + 1))
        assert described == (0 if board.operator == "incr" else count)
        rest = rest[2 * described :]
        votes, rest = int(rest[0]), rest[1:]
        assert votes == (7 if board.votes else 0)
        rest = rest[3 * votes :]
    events = 7 if isinstance(board.window, Sliding) else 0
    assert rest[:1] == ([events] if events else [])
    assert len(rest) == (1 + 3 * events if events else 0)


async def test_a_script_is_loaded_where_it_is_missing(valkey_url: str) -> None:
    """A store that does not know the hash is sent the source, once."""
    client = connect(valkey_url, fresh_settings(valkey_url))
    script = Script("mine", GOOD + f"-- {fresh_settings(valkey_url).key_prefix}")
    assert await script(client, ["a"], [1]) == [b"a"]
    assert await client.script_exists(script_hash(script)) == [True]
    assert await script(client, ["b"], [1]) == [b"b"]
    await client.aclose()


def script_hash(script: Script) -> str:
    """The name under which a store keeps a script."""
    return hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


async def test_scripts_refuse_a_board_that_is_not_there(valkey_url: str) -> None:
    """No script but `open` gives birth to a board, whatever it is asked."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    ledger = Ledger(client, rolling_board(), settings)
    await ledger.open()
    await client.delete(ledger.keys.meta)
    with pytest.raises(EpochLostError):
        await ledger.add([make_entry("a", 1, None)])
    with pytest.raises(EpochLostError):
        await ledger.rotate()
    with pytest.raises(EpochLostError):
        await ledger.read(1)
    assert await Presence(client, settings.key_prefix).report({"posts": 1}) == {}
    assert [key async for key in client.scan_iter(match=f"{Keys(settings.key_prefix, 'posts').channel}*")] == []
    await client.aclose()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("-- KEYS[1]", "-- KEYS[2]", r"KEYS\[2\] is out of order"),
        ("-- ARGV[1]", "-- ARGV[0]", r"ARGV\[0\] is out of order"),
        ("-- ARGV[1] b", "-- ARGV[1...] b — many: of them\n-- ARGV[2] c", r"ARGV\[2\] is out of order"),
        ("-- ARGV[1] b", "-- KEYS[1] b", r"KEYS\[1\] is out of order"),
        ("-- ARGV[1] b", "-- ARGV[1] b — x\n-- ARGV[...] c", r"ARGV\[\.\.\.\] is out of order"),
        ("-- Returns {'ok'}\n", "", "does not say what the script returns"),
    ],
)
def test_a_broken_header_is_refused(before: str, after: str, message: str) -> None:
    """A number left out, doubled or behind what repeats, and a missing answer, are faults of the script."""
    assert before in GOOD
    with pytest.raises(ValueError, match=message):
        parse_header(GOOD.replace(before, after))


def test_a_header_is_read_whole() -> None:
    """Names in order, and how many of the last repeat."""
    source = "-- KEYS[1] a — x\n-- KEYS[2...] b — x\n-- ARGV[1] c — x\n-- Returns nothing\nreturn 1"
    twice = source.replace("-- ARGV", "-- KEYS[...] d — x\n-- ARGV")
    assert parse_header(twice) == Header(("a", "b", "d"), ("c",), more_keys=2, more_arguments=0)
    assert parse_header(source) == Header(("a", "b"), ("c",), more_keys=1, more_arguments=0)
    assert parse_header("-- Returns nothing\nreturn 1") == Header((), (), more_keys=0, more_arguments=0)


async def test_a_store_that_was_started_again_is_sent_each_script_once(own_store: StoreProcess) -> None:
    """Not by each of the many boards that one event may be for."""
    settings = fresh_settings(own_store.url)
    client = connect(own_store.url, settings)
    ledgers = [Ledger(client, rolling_board(board=f"b{number}"), settings) for number in range(100)]
    for ledger in ledgers:
        await ledger.open()
    own_store.kill()
    own_store.start()
    await asyncio.gather(*(ledger.add([make_entry("a")]) for ledger in ledgers))
    stats = await client.info("commandstats")
    assert "cmdstat_eval" not in stats
    assert stats["cmdstat_evalsha"]["calls"] < 250
    await client.aclose()
