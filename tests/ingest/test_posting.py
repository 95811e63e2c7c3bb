"""Identities over the whole server: whose they are, what uses them up, and what the answer says."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from live.domain.event import MAX_SCORE, Event, Identities
from live.errors import REFUSALS
from live.metrics import REGISTRY
from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.ingest import NEWS, POSTS, make_key, scores, serving, told
from tests.harness.producer import post
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

# Producers' ids are narrow; sources and ids may hold anything that JSON can.
texts = st.text(alphabet="a1:*\n\x00", min_size=1, max_size=4)
origins = st.tuples(st.sampled_from(["", "a", "a1", "1"]), st.one_of(st.just(""), texts), texts)


Origin = tuple[str, str, str]


def identity_of(make: type[Identities], origin: Origin) -> bytes:
    """The identity of an event of a producer, with a source (or none) and an id."""
    producer, source, event_id = origin
    event = Event(key="a", id=event_id, source=source) if source else Event(key="a", id=event_id)
    return make(producer).of(event)


def cut(producer: str, text: str, at: int) -> Origin:
    """An event whose source and id stand in one text; the id is never empty."""
    end = at % len(text)
    return producer, text[:end], text[end:]


# Any two events, or two whose sources and ids are the same text, cut at two places.
pairs = st.tuples(origins, origins) | st.builds(
    lambda producer, text, one, other: (cut(producer, text, one), cut(producer, text, other)),
    st.just("a"), texts, st.integers(0, 9), st.integers(0, 9),
)  # fmt: skip


def confused(make: type[Identities], one: Origin, other: Origin) -> bool:
    """Whether identities say that events are one which are two, or the other way round."""
    return (identity_of(make, one) == identity_of(make, other)) != (one == other)


@given(pairs)
def test_an_identity_is_that_of_one_producer_source_and_id(pair: tuple[Origin, Origin]) -> None:
    """No text in a source or an id makes it that of another."""
    assert not confused(Identities, *pair)


@given(origins, st.text(alphabet="a1:*", min_size=1, max_size=4), st.integers(0, 12))
def test_no_event_has_the_identity_of_a_part_of_a_body(origin: Origin, key: str, index: int) -> None:
    """What is made from an Idempotency-Key can't be taken, or used up, by an event with an id."""
    assert identity_of(Identities, origin) != Identities(origin[0]).of_part(key, index)


@given(st.tuples(texts, st.integers(0, 12)), st.tuples(texts, st.integers(0, 12)))
def test_the_parts_of_bodies_do_not_meet(one: tuple[str, int], other: tuple[str, int]) -> None:
    """Other key or other index, other identity; keys have no line ends."""
    (key, index), (other_key, other_index) = one, other
    if "\n" not in key + other_key:
        same = Identities("a").of_part(key, index) == Identities("a").of_part(other_key, other_index)
        assert same == (one == other)


def test_a_source_is_not_remembered_for_ever() -> None:
    """However many sources come by, the identity of each stays what it was, and memory is bounded."""
    identities = Identities("a")
    events = [Event(key="k", id="1", source=f"s{number}") for number in range(300)]
    assert [identities.of(event) for event in events] == [Identities("a").of(event) for event in events]
    assert len(identities._sources) <= 100


class Careless(Identities):
    """Identities without the producer."""

    def __init__(self, _producer: str) -> None:
        super().__init__("")


class Unmeasured(Identities):
    """Identities in which nothing tells where the source ends."""

    def of(self, event: Event) -> bytes:
        return super().of(Event(key="a", id=f"{event.source or ''}{event.id}"))


@pytest.mark.parametrize("make", [Careless, Unmeasured])
def test_careless_identities_are_caught(make: type[Identities]) -> None:
    """The first property fails for identities that leave out the producer, or the length of the source."""
    assert find(pairs, lambda pair: confused(make, *pair))


async def test_an_id_counts_once_over_bodies_and_restarts(valkey_url: str) -> None:
    """In one body, in the next, at another server, after a restart; whatever else the event says."""
    settings = fresh_settings(valkey_url)
    async with serving(settings) as first, serving(settings) as second:
        like = {"key": "a", "id": "1", "source": "s"}
        assert told(await post(first, like, like, {"key": "a", "id": "2"})) == (2, 1, [])
        assert told(await post(first, {**like, "key": "b", "amount": 9})) == (0, 1, [])
        assert told(await post(second, {**like, "time": now()}, {"key": "c"})) == (1, 1, [])
    async with serving(settings) as third:
        answer = await post(third, like, {"key": "a", "id": "2"})
        assert (told(answer), answer["offsets"]) == ((0, 2, []), {})
        assert await scores(third) == {"a": 2, "c": 1}


def now(**ahead: float) -> str:
    """The time by this machine's clock, or some way ahead."""
    return (datetime.now(UTC) + timedelta(**ahead)).isoformat()


async def test_ids_are_told_apart_by_their_source(valkey_url: str) -> None:
    """The same id of another source, or of none, is another event; a source and id can't be cut elsewhere."""
    async with serving(fresh_settings(valkey_url)) as client:
        pairs = [("s", "1"), ("t", "1"), (None, "1"), ("s1", "1"), ("s", "11"), ("1:s", "1"), ("s", "1:1"), ("S", "1")]
        events = [{"key": "a", "id": id_, **({} if source is None else {"source": source})} for source, id_ in pairs]
        assert told(await post(client, *events)) == (len(pairs), 0, [])
        assert told(await post(client, *events)) == (0, len(pairs), [])


async def test_ids_are_a_producers_own(valkey_url: str) -> None:
    """Two producers do not take each other's ids, nor those of an anonymous one; two secrets are one producer."""
    settings = fresh_settings(valkey_url, open=True)
    shop, more, site = [await make_key(settings, name) for name in ("shop", "shop", "site")]
    async with serving(settings) as client:
        answers = []
        for key in (None, shop, site, more):
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            response = await client.post("/v1/events", json={"key": "a", "id": "1"}, headers=headers)
            answers.append(told(response.json()))
        assert answers == [(1, 0, []), (1, 0, []), (1, 0, []), (0, 1, [])]


async def test_what_is_refused_does_not_use_its_id_up(valkey_url: str) -> None:
    """Late, early and out of range; set right and sent again each counts, and then it is known."""
    async with serving(fresh_settings(valkey_url)) as client:
        await post(client, {"key": "a"})
        late, early = {"key": "a", "id": "1", "time": now(days=-2)}, {"key": "a", "id": "2", "time": now(hours=1)}
        large = {"key": "a", "id": "3", "amount": MAX_SCORE}
        refusals = [(0, "late"), (1, "early"), (2, "amount_too_large")]
        assert told(await post(client, late, early, large)) == (0, 0, refusals)
        good = [{"key": "a", "id": id_} for id_ in "123"]
        assert told(await post(client, *good)) == (3, 0, [])
        assert told(await post(client, *good)) == (0, 3, [])


async def test_a_board_that_is_forbidden_does_not_use_an_id_up(valkey_url: str) -> None:
    """Once the producer's key is for the board, the event counts."""
    settings = fresh_settings(valkey_url)
    key = await make_key(settings, "shop", boards=("news",))
    async with serving(settings, POSTS, NEWS, key=key) as client:
        event = {"key": "a", "id": "1", "board": "posts"}
        assert told(await post(client, event)) == (0, 0, [(0, "board_forbidden")])
        await make_key(settings, "shop", boards=("posts", "news"))

        async def allowed() -> bool:
            return told(await post(client, event)) == (1, 0, [])

        await eventually(allowed)
        assert told(await post(client, event)) == (0, 1, [])


async def test_a_late_event_that_had_counted_is_a_duplicate(valkey_url: str) -> None:
    """A retry that comes late is told that its event counts, not that it does not."""
    async with serving(fresh_settings(valkey_url), rolling_board(clock="event")) as client:
        old, new = {"key": "a", "id": "1", "time": now(days=-3)}, {"key": "b", "time": now()}
        assert told(await post(client, old)) == (1, 0, [])
        assert told(await post(client, new, old, {**old, "id": "2"})) == (1, 1, [(2, "late")])


async def test_an_event_that_one_board_missed_counts_there_when_sent_again(valkey_url: str) -> None:
    """Counted on one board, unavailable on another: the second time it is accepted there, and not counted here."""
    settings = fresh_settings(valkey_url)
    store = connect(valkey_url, settings)
    writers = Keys(settings.key_prefix, "news").writers
    async with serving(settings, POSTS, NEWS) as client:
        events = [{"key": "a", "id": "1"}, {"key": "b", "id": "2", "board": "posts"}]
        await post(client, {"key": "z"})
        await store.rename(writers, f"{writers}-away")
        await store.set(writers, "a hash stood here")  # the store refuses whatever is to be done with the board
        answer = await post(client, *events)
        assert (told(answer), answer["offsets"]) == ((2, 0, [(0, "board_unavailable", "news")]), {"posts": 2})
        assert answer["rejected"][0]["detail"] == REFUSALS["board_unavailable"]
        await store.rename(f"{writers}-away", writers)

        answer = await post(client, *events)
        assert (told(answer), answer["offsets"]) == ((1, 1, []), {"news": 2})
        assert told(await post(client, *events)) == (0, 2, [])
        assert await scores(client) == {"a": 1, "b": 1, "z": 1}
        assert await scores(client, "news") == {"a": 1, "z": 1}
    await store.aclose()


async def test_rejections_and_duplicates_are_named_in_order(valkey_url: str) -> None:
    """By index, whoever refused: the decoder, the routes, the boards; what is known is only counted."""
    async with serving(fresh_settings(valkey_url), POSTS, NEWS) as client:
        await post(client, {"key": "a", "id": "1"})
        body: list[Any] = [
            {"key": "a", "time": now(days=-2)}, {"key": ""}, {"key": "a", "id": "1"}, {"key": "a", "board": "x"},
            {"key": "a", "id": "9"}, {"key": "a", "type": "x"}, 7, {"key": "a", "id": "9", "board": "posts"},
        ]  # fmt: skip
        assert told(await post(client, *body)) == (
            1,
            2,
            [(0, "late", "posts"), (0, "late", "news"), (1, "key_invalid"), (3, "board_unknown"), (5, "type_unknown"),
             (6, "event_invalid")],
        )  # fmt: skip


async def test_what_does_not_count_is_in_the_metrics(valkey_url: str) -> None:
    """Late and early ones by their codes, and what was known."""

    def figures() -> list[float]:
        names = [("live_events_rejected_total", {"code": "late"}), ("live_events_rejected_total", {"code": "early"}),
                 ("live_events_duplicate_total", {}), ("live_events_accepted_total", {"board": "posts"})]  # fmt: skip
        return [REGISTRY.get_sample_value(name, labels) or 0 for name, labels in names]

    async with serving(fresh_settings(valkey_url)) as client:
        before = figures()
        late, early = {"key": "a", "time": now(days=-2)}, {"key": "a", "time": now(hours=1)}
        await post(client, late, late, early, {"key": "a", "id": "1"}, {"key": "a", "id": "1"}, {"key": "b"})
        assert [after - was for after, was in zip(figures(), before, strict=True)] == [2, 1, 1, 2]


async def test_one_body_may_hold_as_many_ids_as_events(valkey_url: str) -> None:
    """Three thousand in a body and in a batch: all new, then all known; four times at once they count once."""
    async with serving(fresh_settings(valkey_url, max_events=3000, batch_size=3000)) as client:
        many = [{"key": f"k{number % 10}", "id": f"{number}"} for number in range(3000)]
        assert told(await post(client, *many)) == (3000, 0, [])
        assert told(await post(client, *many)) == (0, 3000, [])
        more = [{"key": "more", "id": f"more{number}"} for number in range(3000)]
        answers = [told(answer) for answer in await asyncio.gather(*(post(client, *more) for _ in range(4)))]
        assert sorted(answers) == [(0, 3000, [])] * 3 + [(3000, 0, [])]
        assert (await scores(client))["more"] == 3000
