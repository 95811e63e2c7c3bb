"""Voters: the stored digests cannot be forged, and quotas are exact."""

import asyncio
from collections import Counter
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from live.domain.choices import Votes
from live.domain.decoding import decode_json
from live.domain.event import Extra, make_entry
from live.domain.window import Forever
from live.store.board.ledger import Ledger
from live.store.board.write.slot_assignment import voter_digests
from tests.harness.boards import built, open_ledger

T0: Final = 3_600_000_000
QUOTAS: Final = built(
    id="b", title="b", window=Forever(), clock="event", ties="key", votes=Votes(per_key=1, per_actor=2)
)
tricky = st.text(st.sampled_from(["a", "b", "\n", ":", "1", "2", "\0", "\u00e9"]), min_size=1, max_size=5)
texts = st.one_of(tricky, st.text(min_size=1, max_size=20))


@given(st.tuples(texts, texts), st.tuples(texts, texts), st.binary(min_size=16, max_size=16))
def test_different_voters_and_pairs_have_different_digests(
    one: tuple[str, str], other: tuple[str, str], secret: bytes
) -> None:
    """Any two texts have different digests. A voter's digest never equals the digest of a pair."""
    try:
        first, second = voter_digests(secret, *one), voter_digests(secret, *other)
    except UnicodeEncodeError:
        return  # the text has a lone surrogate, and decoders refuse such a text
    assert (first[0] == second[0]) == (one[0] == other[0])
    assert (first[1] == second[1]) == (one == other)
    assert not {first[0], second[0]} & {first[1], second[1]}
    assert first != voter_digests(secret + b"x", *one)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(tricky, tricky, st.sampled_from([1, 1, 1, -1])), max_size=30))
def test_quotas_equal_a_plain_count(valkey_url: str, votes: list[tuple[str, str, int]]) -> None:
    """Actors and members have names that are easy to confuse."""
    asyncio.run(_count(valkey_url, votes))


async def _count(store: str, votes: list[tuple[str, str, int]]) -> None:
    mine, its, sums, expected = Counter[str](), Counter[tuple[str, str]](), Counter[str](), {}
    for index, (actor, member, change) in enumerate(votes):
        if change > 0 and (mine[actor] >= 2 or its[actor, member] >= 1):
            expected[index] = "quota_exceeded"
        elif its[actor, member] + change < 0:
            expected[index] = "vote_missing"
        else:
            mine[actor] += change
            its[actor, member] += change
            sums[member] += change
    async with open_ledger(store, QUOTAS) as ledger:
        entries = [make_entry(member, change, T0, None, Extra(actor)) for actor, member, change in votes]
        if entries:
            assert (await ledger.writer.add(entries)).refused == expected
        page = await ledger.reader.read(100)
        assert {record.member: record.score for record in page.records} == {
            member: n for member, n in sums.items() if n
        }


@pytest.mark.parametrize("actor", ["alice\\nAda", "\\u0000", "a\\u007f", "\\u0085"])
def test_control_characters_in_an_actor_are_refused(actor: str) -> None:
    """The event may be alone, or in an array with valid events."""
    event = f'{{"key":"k","actor":"{actor}"}}'
    for body, index in ((event, 0), (f'[{{"key":"a","actor":"ann"}},{event}]', 1)):
        (rejection,) = decode_json(body.encode(), 10).rejections
        assert (rejection.index, rejection.code) == (index, "event_invalid")
        assert "`actor` contains the control character U+" in rejection.detail


async def test_a_new_board_has_its_own_secret(any_store: str) -> None:
    """Every process receives the same secret."""
    async with open_ledger(any_store, QUOTAS) as one:
        other = Ledger(one.state.client, QUOTAS, one.state.settings)
        await one.state.open()
        await other.state.open()
        assert len(one.state.secret) == 16
        assert one.state.secret == other.state.secret
    async with open_ledger(any_store, QUOTAS) as another:
        await another.state.open()
        assert another.state.secret != one.state.secret
