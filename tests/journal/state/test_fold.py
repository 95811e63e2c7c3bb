"""The fold reads from the journal what only the scripts can know."""

from functools import partial

import msgspec
import pytest

from live.boards.definitions import read_board
from live.domain.board import Rules
from live.domain.event import Extra, make_entry
from live.domain.window import Sliding
from live.journal.log.entries import Erase, Head
from live.journal.state.fold import apply, trim
from live.journal.state.snapshot import Snapshot, reached_of
from live.store.board.ledger import Ledger
from live.store.board.read.reader import TAG
from live.store.board.write.merging import put_move, read_move
from live.store.connection.client import connect
from tests.harness.boards import changed, rolling_board
from tests.harness.folded import Folded
from tests.harness.ledger_machine import simulated_scripts
from tests.harness.mutation import Mutant, must_be_caught
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

NOON = 4_000_000_000
UNTOLD = Mutant("rotate", "if board.journal and #granted > 0 then", "if false then")


async def rotation_gives_tags(store: str, mutant: Mutant | None) -> None:
    """Amounts cancel out until the first slot expires; then the members get new places among ties."""
    settings = fresh_settings(store, journal="sqlite")
    clock = f"{settings.key_prefix}:time"
    client = connect(store, settings)
    board = rolling_board("40s", "10s", ties="first")
    ledger = Ledger(client, board, settings, simulated_scripts(store, clock, mutant))

    async def at(seconds: int, *likes: tuple[str, int]) -> None:
        await client.delete(clock)
        await client.rpush(clock, str(NOON + seconds), "250000")
        if likes:
            await ledger.writer.add([make_entry(member, amount, None, None) for member, amount in likes])

    try:
        await at(0, ("a", -1), ("b", -1))
        await at(10, ("b", 1), ("a", 1))
        await at(50)
        while await ledger.rotator.rotate() is None:
            pass
        folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
        await folded.read()
        page = await ledger.reader.read(10)
        assert sorted(record.member for record in page.records) == ["a", "b"]
        assert folded.ranking(board, (NOON + 50) * 1000) == [(record.member, record.score) for record in page.records]
        tags = folded.tags(board, None)
        assert {offset for _, offset, _ in tags.values()} == {page.offset}, "the tags are not those of the rotation"
    finally:
        await client.aclose()


async def rotation_drops_a_tag(store: str, mutant: Mutant | None) -> None:
    """Amounts of `a` cancel out when the first slot expires. Then both members get one with an earlier time."""
    settings = fresh_settings(store, journal="sqlite")
    clock = f"{settings.key_prefix}:time"
    client = connect(store, settings)
    board = rolling_board("40s", "10s", ties="first")
    ledger = Ledger(client, board, settings, simulated_scripts(store, clock, mutant))

    async def at(seconds: int, *likes: tuple[str, int, int]) -> None:
        await client.delete(clock)
        await client.rpush(clock, str(NOON + seconds), "250000")
        await ledger.writer.add(
            [make_entry(member, amount, (NOON + time) * 1000, None) for member, amount, time in likes]
        )
        while await ledger.rotator.rotate() is None:
            pass

    try:
        await at(15, ("a", 1, 0), ("a", 1, 15), ("a", -1, 15))
        await at(50, ("b", 1, 13))
        await at(51, ("a", 1, 12))
        folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
        await folded.read()
        page = await ledger.reader.read(10)
        assert [record.member for record in page.records] == ["a", "b"]
        assert folded.ranking(board, (NOON + 51) * 1000) == [("a", 1), ("b", 1)]
    finally:
        await client.aclose()


@pytest.mark.one_server
async def test_a_member_that_is_shown_without_a_score_has_no_tag(valkey_url: str) -> None:
    """Its amounts cancel each other out while it is hidden, so a sliding window has no slot."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    clock, client = f"{settings.key_prefix}:time", connect(valkey_url, settings)
    board = changed(rolling_board("40s", "10s", ties="first"), window=Sliding(40))
    ledger = Ledger(client, board, settings, simulated_scripts(valkey_url, clock, None))

    async def at(seconds: int) -> None:
        await client.delete(clock)
        await client.rpush(clock, str(NOON + seconds), "0")

    try:
        await at(5)
        await ledger.moderation.hide("a", hidden=True)
        await ledger.writer.add([make_entry("a", -1, None), make_entry("a", 1, NOON * 1000)])
        for hidden in (False, True, False):
            await ledger.moderation.hide("a", hidden=hidden)
        await at(40)
        while await ledger.rotator.rotate() is None:
            pass
        folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
        await folded.read()
        (name,) = (await ledger.reader.read(10)).names
        assert folded.tags(board, None) == {"a": reached_of(folded.contents.shape, name[:TAG])}
    finally:
        await client.aclose()


@pytest.mark.one_server
async def test_a_renamed_member_has_its_place_under_a_name_that_was_forgotten(valkey_url: str) -> None:
    """The journal does not say that a member with this name has lost its place when its slot left the window."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    clock, client = f"{settings.key_prefix}:time", connect(valkey_url, settings)
    board = rolling_board("40s", "10s", ties="first")
    ledger = Ledger(client, board, settings, simulated_scripts(valkey_url, clock, None))
    try:
        for seconds, member in ((0, "new"), (45, "old"), (50, "ann"), (61, "bob")):
            await client.delete(clock)
            await client.rpush(clock, str(NOON + seconds), "0")
            await ledger.writer.add([make_entry(member, 1, None)])
            while await ledger.rotator.rotate() is None:
                pass
        read = partial(read_move, ledger.state, ("old", "new"), "another name", renames=True)
        assert (await put_move(ledger.writer, read)).slots == 1
        folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
        await folded.read()
        assert folded.ranking(board, (NOON + 61) * 1000) == [("new", 1), ("ann", 1), ("bob", 1)]
        assert [record.member for record in (await ledger.reader.read(10)).records] == ["new", "ann", "bob"]
    finally:
        await client.aclose()


@pytest.mark.one_server
async def test_tags_from_rotation_are_in_the_journal(valkey_url: str) -> None:
    """Only the script knows the tags, because it finds the members in any order."""
    await rotation_gives_tags(valkey_url, None)
    await rotation_drops_a_tag(valkey_url, None)


@pytest.mark.mutant
async def test_missing_tags_are_detected(volatile_store: StoreProcess) -> None:
    """Without tags, the fold does not know the order of ties, because events do not tell it."""
    with must_be_caught("a tag of rotation is missing in the journal"):
        await rotation_gives_tags(volatile_store.url, UNTOLD)
    with must_be_caught("a tag that rotation drops is missing in the journal"):
        await rotation_drops_a_tag(
            volatile_store.url, Mutant("rotate", "told_from = 1000 * request.kept", "told_from = math.huge")
        )


def test_a_ranking_over_its_limit_loses_its_last_records() -> None:
    """Hidden members do not count toward the limit."""
    data, slot = Snapshot(), {"a": 4, "hidden": 3, "b": 2, "c": 1, "d": 0}
    data.slots, data.hidden = {0: slot.copy()}, {"hidden"}
    data.ranking("").metadata = dict.fromkeys(slot, b"{}")
    data.ranking("").reached = dict.fromkeys(slot, (1, 1, 1))
    for cap, left in ((4, slot.keys()), (3, slot.keys() - {"d"}), (2, {"a", "hidden", "b"})):
        trim(data, 0, "", Rules(operation="best", order="backward", cap=cap))
        held = data.ranking("")
        assert data.slots[0].keys() == held.metadata.keys() == held.reached.keys() == left


@pytest.mark.parametrize(
    ("operator", "last"), [("best", {"a": b'{"n":1}', "b": b'{"n":5}'}), ("set", {"a": b'{"n":3}'})]
)
async def test_metadata_is_that_of_the_event_that_counts(
    valkey_url: str, operator: str, last: dict[str, bytes]
) -> None:
    """With `set`, an event with the same amount replaces the metadata, and an event without metadata removes it."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    client = connect(valkey_url, settings)
    ledger = Ledger(client, read_board("b", {"operator": operator, "window": "forever"}), settings)
    for number, (member, amount) in enumerate((("a", 4), ("a", 4), ("a", 3), ("b", 1), ("b", 2), ("b", 1))):
        extra = None if number == 5 and operator == "set" else Extra(None, b'{"n":%d}' % (number + 1))
        await ledger.writer.add([make_entry(member, amount, None, None, extra)])
    folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
    await folded.read()
    assert folded.contents.ranking("").metadata == last
    page = await ledger.reader.read(10)
    assert {record.member: bytes(record.metadata) for record in page.records if record.metadata} == last
    await client.aclose()


async def test_a_member_that_is_withdrawn_is_not_registered(valkey_url: str) -> None:
    """The fold has the registered members that the store has, with their metadata."""
    settings = fresh_settings(valkey_url, journal="sqlite")
    client = connect(valkey_url, settings)
    ledger = Ledger(client, read_board("vote", {"window": "forever", "votes": {"registered": True}}), settings)
    for member in ("ann", "bob"):
        await ledger.moderation.enter(member, b'{"n":1}')
    await ledger.moderation.withdraw("ann")
    folded = Folded(client, ledger.state.keys, ledger.state.epoch or "")
    await folded.read()
    assert folded.contents.entrants == {"bob": b'{"n":1}'}
    await client.aclose()


async def test_a_journal_that_begins_later_has_the_identities_from_before(valkey_url: str) -> None:
    """The journal also says how long each identity is remembered."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    before = Ledger(client, rolling_board(), settings)
    await before.writer.add([make_entry("a", 1, None, bytes(16))])
    after = Ledger(client, rolling_board(), msgspec.structs.replace(settings, journal="sqlite"))
    await after.state.open()
    folded = Folded(client, after.state.keys, after.state.epoch or "")
    await folded.read()
    assert (folded.contents.span, len(folded.contents.seen)) == (after.state.buckets.span, 1)
    await client.aclose()


def test_nothing_is_left_of_earlier_periods() -> None:
    """Scores, voters and the times of their votes are gone."""
    data = Snapshot(slots={0: {"a": 1}, 60: {"b": 2}, 120: {}})
    for suffix in (":0", ":60", ":120"):
        data.ranking(suffix)
    data.drop_before(60)
    assert (data.slots, [*data.rankings]) == ({60: {"b": 2}, 120: {}}, [":60", ":120"])


def test_an_erasure_takes_digests_and_a_member_out_of_contents() -> None:
    """Earlier entries have an empty name in place of the member. Amounts under the empty name are taken out too."""
    digest = b"d" * 16
    data = Snapshot(slots={0: {"a": 1, "b": 2, "": 3}}, seen={0: {digest, b"e" * 16}})
    for kind, gone, member, left in (("erase", [digest], "", 3), ("forget", [], "b", 1)):
        apply(data, Head(kind, 0, "7-0", 5, "link", ""), msgspec.msgpack.encode(Erase(digests=gone, member=member)))
        assert (len(data.slots[0]), data.seen, data.offset) == (left, {0: {b"e" * 16}}, 7)
    assert data.slots == {0: {"a": 1}}
