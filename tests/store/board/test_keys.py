"""The names of store keys: one hash tag for each board, and a pattern that matches its slots and nothing else."""

import itertools

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from live.store.board.keys import Keys, SystemKeys
from tests.harness.settings import fresh_settings


def all_of(keys: Keys) -> list[str]:
    """Every store key of a board, and its channel."""
    return [
        *keys.table().all, *keys.table(0).all, *keys.table(-3600).all, keys.meta, keys.slots, keys.writers, keys.log,
        keys.entrants, keys.hidden, keys.baseline, keys.viewers, keys.gone, keys.slot(0), keys.slot(-3600),
        keys.seen(0), keys.channel,
    ]  # fmt: skip


def test_store_keys_have_the_documented_names() -> None:
    """Operators can find the store keys of a board by its id."""
    keys = Keys("live", "posts")
    tables = [
        f"live:{{posts}}:{name}{suffix}"
        for suffix in ("", ":0", ":-3600")
        for name in ("ranking", "reached", "levels", "metadata", "votes")
    ]
    assert all_of(keys) == [
        *tables,
        "live:{posts}:meta",
        "live:{posts}:slots",
        "live:{posts}:writers",
        "live:{posts}:log",
        "live:{posts}:entrants",
        "live:{posts}:hidden",
        "live:{posts}:baseline",
        "live:{posts}:viewers",
        "live:{posts}:gone",
        "live:{posts}:slot:0",
        "live:{posts}:slot:-3600",
        "live:{posts}:seen:0",
        "live:{posts}",
    ]
    assert len(set(all_of(keys))) == len(all_of(keys))


@pytest.mark.parametrize("board", ["posts", "a", "0", "a-b_c", "x" * 64])
def test_a_board_is_in_one_cluster_slot(board: str) -> None:
    """All store keys of a board hash like the board's id, whatever the prefix is."""
    slots = {key_slot(key.encode()) for prefix in ("live", "t-1") for key in all_of(Keys(prefix, board))}
    assert slots == {key_slot(board.encode())}


def test_boards_spread_over_the_cluster() -> None:
    """Different boards are not all in one Cluster slot."""
    assert len({key_slot(Keys("live", f"board-{number}").ranking.encode()) for number in range(100)}) > 90


def test_no_two_boards_share_a_store_key() -> None:
    """Two ids may begin with the same characters, and so may two prefixes."""
    names = [all_of(Keys(prefix, board)) for prefix in ("a", "a-b") for board in ("c", "b-c", "slot", "meta", "c-0")]
    for one, other in itertools.combinations(names, 2):
        assert not set(one) & set(other)


@pytest.mark.one_server
async def test_the_pattern_finds_the_slots_of_one_board(valkey_url: str) -> None:
    """The pattern matches neither slots of another board or prefix, nor other store keys of the board."""
    prefix = fresh_settings(valkey_url).key_prefix
    client = Redis.from_url(valkey_url)
    own, *others = (Keys(prefix, "ab"), Keys(prefix, "a"), Keys(prefix, "abc"), Keys(f"{prefix}x", "ab"))
    for keys in (own, *others):
        for key in all_of(keys):
            await client.set(key, 1)

    found = {key.decode() async for key in client.scan_iter(match=own.slot_pattern, count=10_000)}

    assert found == {own.slot(0), own.slot(-3600)}
    await client.aclose()


def test_a_board_without_periods_keeps_its_names() -> None:
    """The names of its only ranking have no suffix."""
    keys = Keys("live", "posts")
    assert keys.table().ranking == keys.ranking
    assert (keys.table().suffix, keys.table(5).suffix) == ("", ":5")
    assert keys.table("5").all == keys.table(5).all
    assert keys.table(5).order == keys.table(5).all[:3]


@pytest.mark.parametrize("board", ["boards", "producers", "once", "rate", "a", "x" * 64])
def test_no_board_has_the_name_of_a_system_key(board: str) -> None:
    """The hash tags of system keys contain a colon, so no board shares their Cluster slots because of its id."""
    names = SystemKeys("live")
    system = {names.definitions, names.trail, names.producers}
    assert not system & set(all_of(Keys("live", board)))
    assert all(":" in name.partition("{")[2].partition("}")[0] for name in system)
