"""The scripts: what a header documents is what the source uses, and what the callers send."""

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import live.store
from live.errors import EpochLostError
from live.event import make_entry
from live.producer import Scope
from live.settings import Settings
from live.store.audit import AUDIT, SETTLE, Auditor
from live.store.client import Store, connect
from live.store.keys import Keys
from live.store.leases import TAKE, LeaseStore
from live.store.ledger import SCRIPTS, Ledger
from live.store.line import SharedLine, Word
from live.store.producers import REGISTER, ProducerStore
from live.store.scripts import Script
from tests.store.headers import Header, parse_header
from tests.support import fresh_settings, rolling_board

FOLDER = Path(live.store.__file__).parent / "lua"
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.lua"))}
USED = {script.name: script for script in (*msgspec.structs.astuple(SCRIPTS), AUDIT, SETTLE, REGISTER, TAKE)}
GOOD = "-- Does it.\n-- KEYS[1] a — hash: it\n-- ARGV[1] b — integer: how often\n-- Returns {'ok'}\nreturn {KEYS[1]}\n"


class Recorder(SharedLine):
    """A line that notes the scripts that it really runs: hash, number of keys, keys and arguments."""

    def __init__(self, store: Store, settings: Settings) -> None:
        super().__init__(store.connection_pool, settings.store_timeout)
        self.calls: list[tuple[str, int, list[Word]]] = []

    async def call(self, *words: Word) -> Any:
        """Note the call, and make it."""
        command, script, keys, *sent = words
        if command == "EVALSHA":
            self.calls.append((str(script), int(keys), sent))
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
    assert {script.source for script in USED.values()} == set(SOURCES.values())


async def test_callers_send_what_the_headers_document(valkey_url: str) -> None:
    """Every script is really run, with as many keys and arguments as its header says, on keys of one tag only."""
    settings = fresh_settings(valkey_url, rotation_step=1)
    board = rolling_board(clock="event")
    async with recording(valkey_url, settings) as (client, recorder):
        auditor = Auditor(client, board.id, settings.key_prefix, lambda *_: None)
        await drive(client, Ledger(client, board, settings), auditor)
        record, _ = await ProducerStore(client, settings.key_prefix).add("shop", Scope())
        await LeaseStore(client, settings.key_prefix).take(record.producer(1, 1), 0, 1, 1)

    by_hash = {
        hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest(): script for script in USED.values()
    }
    for sha, keys, sent in recorder.calls:
        header = parse_header(by_hash[sha].source)
        assert fits(keys, header.keys, more=header.more_keys)
        assert fits(len(sent) - keys, header.arguments, more=header.more_arguments)
        tags = {str(key).removeprefix(f"{settings.key_prefix}:{{").partition("}")[0] for key in sent[:keys]}
        assert tags in ({"posts"}, {"producers"}, {"rate:shop"})
    assert {by_hash[sha].name for sha, _, _ in recorder.calls} == SOURCES.keys()


def fits(count: int, names: tuple[str, ...], *, more: int) -> bool:
    """Whether so many were sent as are documented; what repeats may stand there any number of times."""
    return count >= len(names) - more if more else count == len(names)


async def drive(client: Store, ledger: Ledger, auditor: Auditor) -> None:
    """Do everything once that a script does, in all the ways that it can be asked for."""
    await ledger.add([make_entry("a", 2, 0), make_entry("b", 1, 3_600_000), make_entry("b", -1, 3_600_000)])
    await ledger.add([make_entry("c", 1, 40 * 3_600_000)])
    await ledger.add([make_entry("c", 1, 40 * 3_600_000, bytes(16))])
    while await ledger.rotate() is None:
        pass
    await ledger.read(5)
    await ledger.read(5, after=(1, "c"))
    await ledger.find("c", 1)
    await client.hset(ledger.keys.meta, "total", 99)
    await auditor.audit(repair=True)


async def test_the_groups_of_a_batch_are_taken_apart_whole(valkey_url: str) -> None:
    """Start, number, then pairs, for each slot key: what the caller sends is used up to the last argument."""
    settings = fresh_settings(valkey_url)
    async with recording(valkey_url, settings) as (client, recorder):
        ledger = Ledger(client, rolling_board(clock="event"), settings)
        await ledger.add([make_entry(f"k{i % 3}", i, i * 3_600_000, bytes([i] * 16)) for i in range(7)])

    _, keys, sent = recorder.calls[-1]
    arguments = sent[keys:]
    buckets, identities, alone = int(arguments[12]), int(arguments[13]), 14
    assert arguments[alone : alone + identities] == [bytes([i] * 16) for i in range(7)]
    groups = arguments[alone + identities :]
    for slot in sent[4 + buckets : keys]:
        start, count = str(groups[0]), int(groups[1])
        assert slot == ledger.keys.slot(start)
        groups = groups[2 + 2 * count :]
    assert groups == []


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
