"""The identities of events in a whole server: which producer they belong to, and which events use them up."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from live.domain.event import MAX_SCORE, Identities, IncomingEvent
from live.errors import REFUSALS
from live.metrics import REGISTRY
from live.store.board.keys import Keys
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.ingest import NEWS, POSTS, make_key, scores, summary
from tests.harness.producer import post
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

# Producer ids have a restricted form. Sources and ids may contain anything that JSON can express.
texts = st.text(alphabet="a1:*\n\x00", min_size=1, max_size=4)
origins = st.tuples(st.sampled_from(["", "a", "a1", "1"]), st.one_of(st.just(""), texts), texts)


Origin = tuple[str, str, str]


def identity_of(make: type[Identities], origin: Origin) -> bytes:
    """The identity of a producer's event, with an id and optionally a source."""
    producer, source, event_id = origin
    event = IncomingEvent(member="a", id=event_id, source=source) if source else IncomingEvent(member="a", id=event_id)
    return make(producer).of(event)


def cut(producer: str, text: str, at: int) -> Origin:
    """An event whose source and id are the two parts of one text; the id is never empty."""
    end = at % len(text)
    return producer, text[:end], text[end:]


# Two unrelated events, or two events for which `source + id` is the same text, split at different positions.
pairs = st.tuples(origins, origins) | st.builds(
    lambda producer, text, one, other: (cut(producer, text, one), cut(producer, text, other)),
    st.just("a"), texts, st.integers(0, 9), st.integers(0, 9),
)  # fmt: skip


def confused(make: type[Identities], one: Origin, other: Origin) -> bool:
    """Return whether different events share an identity, or equal events have different identities."""
    return (identity_of(make, one) == identity_of(make, other)) != (one == other)


@given(pairs)
def test_an_identity_belongs_to_one_producer_source_and_id(pair: tuple[Origin, Origin]) -> None:
    """No text in a source or an id makes the identity equal to that of another event."""
    assert not confused(Identities, *pair)


members = st.sampled_from(["a", "1", "\n1"])


@given(origins, st.text(alphabet="a1:*", min_size=1, max_size=4), st.integers(0, 12), members)
def test_no_event_has_the_identity_of_an_element_of_a_body(origin: Origin, key: str, index: int, member: str) -> None:
    """An event with an id can't use up an identity made from an Idempotency-Key."""
    assert identity_of(Identities, origin) != Identities(origin[0]).of_parts(key)(index, IncomingEvent(member=member))


@given(st.tuples(texts, st.integers(0, 12), members), st.tuples(texts, st.integers(0, 12), members))
def test_elements_of_different_bodies_have_different_identities(
    one: tuple[str, int, str], other: tuple[str, int, str]
) -> None:
    """Idempotency keys, indexes and contents all make a difference. Idempotency keys have no line ends."""

    def identity(key: str, index: int, member: str) -> bytes:
        return Identities("a").of_parts(key)(index, IncomingEvent(member=member))

    if "\n" not in one[0] + other[0]:
        assert (identity(*one) == identity(*other)) == (one == other)


def test_the_memory_for_sources_is_bounded() -> None:
    """With any number of sources, the identity of each event stays the same."""
    identities = Identities("a")
    events = [IncomingEvent(member="k", id="1", source=f"s{number}") for number in range(300)]
    assert [identities.of(event) for event in events] == [Identities("a").of(event) for event in events]
    assert len(identities._sources) <= 100


class Careless(Identities):
    """A mutant whose identities do not contain the producer."""

    def __init__(self, _producer: str) -> None:
        super().__init__("")


class Unmeasured(Identities):
    """A mutant whose identities do not mark where the source ends."""

    def of(self, event: IncomingEvent) -> bytes:
        return super().of(IncomingEvent(member="a", id=f"{event.source or ''}{event.id}"))


@pytest.mark.parametrize("make", [Careless, Unmeasured])
def test_careless_identities_are_caught(make: type[Identities]) -> None:
    """The property fails for identities without the producer, or without the length of the source."""
    assert find(pairs, lambda pair: confused(make, *pair))


@pytest.mark.slow
async def test_an_id_counts_once_over_bodies_and_restarts(valkey_url: str) -> None:
    """The id is repeated in one body, in the next with other content, on another server and after a restart."""
    settings = fresh_settings(valkey_url)
    async with serving(settings) as first, serving(settings) as second:
        like = {"key": "a", "id": "1", "source": "s"}
        assert summary(await post(first, like, like, {"key": "a", "id": "2"})) == (2, 1, [])
        assert summary(await post(first, {**like, "key": "b", "amount": 9})) == (0, 1, [])
        assert summary(await post(second, {**like, "time": now()}, {"key": "c"})) == (1, 1, [])
    async with serving(settings) as third:
        answer = await post(third, like, {"key": "a", "id": "2"})
        assert (summary(answer), answer["offsets"]) == ((0, 2, []), {})
        assert await scores(third) == {"a": 2, "c": 1}


def now(**ahead: float) -> str:
    """The current time by this machine's clock, plus an offset."""
    return (datetime.now(UTC) + timedelta(**ahead)).isoformat()


async def test_ids_are_scoped_to_their_source(valkey_url: str) -> None:
    """The same id with another source, or with none, is another event.

    So is the same text, split into source and id at another place.
    """
    async with serving(fresh_settings(valkey_url)) as client:
        pairs = [("s", "1"), ("t", "1"), (None, "1"), ("s1", "1"), ("s", "11"), ("1:s", "1"), ("s", "1:1"), ("S", "1")]
        events = [{"key": "a", "id": id_, **({} if source is None else {"source": source})} for source, id_ in pairs]
        assert summary(await post(client, *events)) == (len(pairs), 0, [])
        assert summary(await post(client, *events)) == (0, len(pairs), [])


async def test_ids_are_scoped_to_their_producer(valkey_url: str) -> None:
    """Producers, including the anonymous one, do not share ids; two API keys of one producer do."""
    settings = fresh_settings(valkey_url, open=True)
    shop, more, site = [await make_key(settings, name) for name in ("shop", "shop", "site")]
    async with serving(settings) as client:
        answers = []
        for key in (None, shop, site, more):
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            response = await client.post("/v1/events", json={"key": "a", "id": "1"}, headers=headers)
            answers.append(summary(response.json()))
        assert answers == [(1, 0, []), (1, 0, []), (1, 0, []), (0, 1, [])]


async def test_a_refused_event_does_not_use_up_its_id(valkey_url: str) -> None:
    """A late, an early and a too large event each count after a correction. After that, they are duplicates."""
    async with serving(fresh_settings(valkey_url)) as client:
        await post(client, {"key": "a"})
        late, early = {"key": "a", "id": "1", "time": now(days=-2)}, {"key": "a", "id": "2", "time": now(hours=1)}
        large = {"key": "a", "id": "3", "amount": MAX_SCORE}
        refusals = [(0, "late"), (1, "early"), (2, "amount_too_large")]
        assert summary(await post(client, late, early, large)) == (0, 0, refusals)
        good = [{"key": "a", "id": id_} for id_ in "123"]
        assert summary(await post(client, *good)) == (3, 0, [])
        assert summary(await post(client, *good)) == (0, 3, [])


@pytest.mark.slow
async def test_a_forbidden_board_does_not_use_up_an_id(valkey_url: str) -> None:
    """The event counts once the producer may post to the board."""
    settings = fresh_settings(valkey_url)
    key = await make_key(settings, "shop", boards=("news",))
    async with serving(settings, POSTS, NEWS, key=key) as client:
        event = {"key": "a", "id": "1", "board": "posts"}
        assert summary(await post(client, event)) == (0, 0, [(0, "board_forbidden")])
        await make_key(settings, "shop", boards=("posts", "news"))

        async def allowed() -> bool:
            return summary(await post(client, event)) == (1, 0, [])

        await eventually(allowed)
        assert summary(await post(client, event)) == (0, 1, [])


async def test_a_late_retry_of_a_counted_event_is_a_duplicate(valkey_url: str) -> None:
    """The answer counts the event as a duplicate. It does not say that the event is late."""
    async with serving(fresh_settings(valkey_url), rolling_board(clock="event")) as client:
        old, new = {"key": "a", "id": "1", "time": now(days=-3)}, {"key": "b", "time": now()}
        assert summary(await post(client, old)) == (1, 0, [])
        assert summary(await post(client, new, old, {**old, "id": "2"})) == (1, 1, [(2, "late")])


@pytest.mark.slow
async def test_an_event_that_one_board_missed_counts_there_on_a_retry(valkey_url: str) -> None:
    """The retry counts on the board that was unavailable, and not again on the board that counted it before."""
    settings = fresh_settings(valkey_url)
    store = connect(valkey_url, settings)
    writers = Keys(settings.key_prefix, "news").writers
    async with serving(settings, POSTS, NEWS) as client:
        events = [{"key": "a", "id": "1"}, {"key": "b", "id": "2", "board": "posts"}]
        await post(client, {"key": "z"})
        await store.rename(writers, f"{writers}-away")
        await store.set(writers, "not a hash")  # the store refuses all commands for this board
        answer = await post(client, *events)
        assert (summary(answer), answer["offsets"]) == ((2, 0, [(0, "board_unavailable", "news", True)]), {"posts": 2})
        assert answer["rejected"][0]["detail"] == REFUSALS["board_unavailable"]
        await store.rename(f"{writers}-away", writers)

        answer = await post(client, *events)
        assert (summary(answer), answer["offsets"]) == ((1, 1, []), {"news": 2})
        assert summary(await post(client, *events)) == (0, 2, [])
        assert await scores(client) == {"a": 1, "b": 1, "z": 1}
        assert await scores(client, "news") == {"a": 1, "z": 1}
    await store.aclose()


async def test_rejections_are_in_order(valkey_url: str) -> None:
    """Rejections are in the order of their indexes, whether decoder, routes or boards refused the events.

    Duplicates are only counted.
    """
    async with serving(fresh_settings(valkey_url), POSTS, NEWS) as client:
        await post(client, {"key": "a", "id": "1"})
        body: list[Any] = [
            {"key": "a", "time": now(days=-2)}, {"key": ""}, {"key": "a", "id": "1"}, {"key": "a", "board": "x"},
            {"key": "a", "id": "9"}, {"key": "a", "type": "x"}, 7, {"key": "a", "id": "9", "board": "posts"},
        ]  # fmt: skip
        assert summary(await post(client, *body)) == (
            1,
            2,
            [(0, "late", "posts"), (0, "late", "news"), (1, "key_invalid"), (3, "board_unknown"), (5, "type_unknown"),
             (6, "event_invalid")],
        )  # fmt: skip


async def test_refused_and_duplicate_events_are_in_the_metrics(valkey_url: str) -> None:
    """The metrics count late and early events by code, and duplicates."""

    def figures() -> list[float]:
        names = [("live_events_rejected_total", {"code": "late"}), ("live_events_rejected_total", {"code": "early"}),
                 ("live_events_duplicate_total", {}), ("live_events_accepted_total", {"board": "posts"})]  # fmt: skip
        return [REGISTRY.get_sample_value(name, labels) or 0 for name, labels in names]

    async with serving(fresh_settings(valkey_url)) as client:
        before = figures()
        late, early = {"key": "a", "time": now(days=-2)}, {"key": "a", "time": now(hours=1)}
        await post(client, late, late, early, {"key": "a", "id": "1"}, {"key": "a", "id": "1"}, {"key": "b"})
        assert [after - earlier for after, earlier in zip(figures(), before, strict=True)] == [2, 1, 1, 2]


@pytest.mark.slow
async def test_a_body_may_have_as_many_ids_as_events(valkey_url: str) -> None:
    """A thousand ids in one body are all new, then all duplicates; four concurrent bodies count once."""
    async with serving(fresh_settings(valkey_url)) as client:
        many = [{"key": f"k{number % 10}", "id": f"{number}"} for number in range(1000)]
        assert summary(await post(client, *many)) == (1000, 0, [])
        assert summary(await post(client, *many)) == (0, 1000, [])
        more = [{"key": "more", "id": f"more{number}"} for number in range(1000)]
        answers = [summary(answer) for answer in await asyncio.gather(*(post(client, *more) for _ in range(4)))]
        assert sorted(answers) == [(0, 1000, [])] * 3 + [(1000, 0, [])]
        assert (await scores(client))["more"] == 1000
