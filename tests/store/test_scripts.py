"""The scripts: what a header documents is what the source uses, and what the callers send."""

import hashlib
import re
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

import live.store
from live.errors import EpochLostError
from live.event import Entry
from live.store.audit import AUDIT, SETTLE, Auditor
from live.store.keys import Keys
from live.store.ledger import SCRIPTS, Ledger
from live.store.scripts import Script
from tests.store.headers import Header, parse_header
from tests.support import fresh_settings, rolling_board

FOLDER = Path(live.store.__file__).parent / "lua"
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.lua"))}
USED = {script.name: script for script in (SCRIPTS.add, SCRIPTS.open, SCRIPTS.read, SCRIPTS.rotate, AUDIT, SETTLE)}
GOOD = "-- Does it.\n-- KEYS[1] a — hash: it\n-- ARGV[1] b — integer: how often\n-- Returns {'ok'}\nreturn {KEYS[1]}\n"


class Recorder(Redis):
    """A client that notes the scripts that it really runs: hash, number of keys, keys and arguments."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.calls: list[tuple[str, int, list[str]]] = []

    def evalsha(self, sha: str, numkeys: int, *keys_and_args: str) -> Awaitable[str] | str:  # type: ignore[override]
        """Note the call, and make it."""
        self.calls.append((sha, numkeys, [str(part) for part in keys_and_args]))
        return super().evalsha(sha, numkeys, *keys_and_args)


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
        assert numbers(kind, SOURCES[name]) == set(range(1, alone + 1))
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
    """Every script is really run, with as many keys and arguments as its header says, on one board's keys only."""
    settings = fresh_settings(valkey_url, rotation_step=1)
    client = Recorder(unix_socket_path=valkey_url.removeprefix("unix://"), protocol=2)
    board = rolling_board(clock="event")
    await drive(
        client, Ledger(client, board, settings), Auditor(client, board.id, settings.key_prefix, lambda *_: None)
    )
    await client.aclose()

    by_hash = {
        hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest(): script for script in USED.values()
    }
    for sha, keys, sent in client.calls:
        header = parse_header(by_hash[sha].source)
        assert fits(keys, header.keys, more=header.more_keys)
        assert fits(len(sent) - keys, header.arguments, more=header.more_arguments)
        assert all(key.startswith(f"{settings.key_prefix}:{{posts}}:") for key in sent[:keys])
    assert {by_hash[sha].name for sha, _, _ in client.calls} == SOURCES.keys()


def fits(count: int, names: tuple[str, ...], *, more: bool) -> bool:
    """Whether so many were sent as are documented; what repeats may stand there any number of times."""
    return count >= len(names) - 1 if more else count == len(names)


async def drive(client: Recorder, ledger: Ledger, auditor: Auditor) -> None:
    """Do everything once that a script does, in all the ways that it can be asked for."""
    await ledger.add([Entry("a", 2, 0), Entry("b", 1, 3_600_000), Entry("b", -1, 3_600_000)])
    await ledger.add([Entry("c", 1, 40 * 3_600_000)])
    while await ledger.rotate() is None:
        pass
    await ledger.read(5)
    await ledger.read(5, after=(1, "c"))
    await ledger.find("c", 1)
    await client.hset(ledger.keys.meta, "total", 99)
    await auditor.audit(repair=True)


async def test_the_groups_of_a_batch_are_taken_apart_whole(valkey_url: str) -> None:
    """Start, number, then pairs, for each slot key: what the caller sends is used up to the last argument."""
    client = Recorder(unix_socket_path=valkey_url.removeprefix("unix://"), protocol=2)
    ledger = Ledger(client, rolling_board(clock="event"), fresh_settings(valkey_url))
    await ledger.add([Entry(f"k{i % 3}", i, i * 3_600_000) for i in range(7)])
    await client.aclose()

    _, keys, sent = client.calls[-1]
    slots, groups = sent[4:keys], sent[keys + len(parse_header(SCRIPTS.add.source).arguments) - 1 :]
    for slot in slots:
        start, count = groups[0], int(groups[1])
        assert slot == ledger.keys.slot(start)
        groups = groups[2 + 2 * count :]
    assert groups == []


async def test_a_script_is_loaded_where_it_is_missing(valkey_url: str) -> None:
    """A store that does not know the hash is sent the source, once."""
    client = Redis.from_url(valkey_url, protocol=2)
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
    client = Redis.from_url(valkey_url, protocol=2)
    settings = fresh_settings(valkey_url)
    ledger = Ledger(client, rolling_board(), settings)
    await ledger.open()
    await client.delete(ledger.keys.meta)
    with pytest.raises(EpochLostError):
        await ledger.add([Entry("a", 1, None)])
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
        ("-- Returns {'ok'}\n", "", "does not say what the script returns"),
    ],
)
def test_a_broken_header_is_refused(before: str, after: str, message: str) -> None:
    """A number left out, doubled or behind what repeats, and a missing answer, are faults of the script."""
    assert before in GOOD
    with pytest.raises(ValueError, match=message):
        parse_header(GOOD.replace(before, after))


def test_a_header_is_read_whole() -> None:
    """Names in order, and whether the last repeats."""
    source = "-- KEYS[1] a — x\n-- KEYS[2...] b — x\n-- ARGV[1] c — x\n-- Returns nothing\nreturn 1"
    assert parse_header(source) == Header(("a", "b"), ("c",), more_keys=True, more_arguments=False)
    assert parse_header("-- Returns nothing\nreturn 1") == Header((), (), more_keys=False, more_arguments=False)
