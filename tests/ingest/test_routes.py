"""The boards that an event feeds, and by how much: types, categories, weighted unions, fields, metadata, votes."""

import asyncio
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any

import httpx
import msgspec
import pytest

from live.domain.board import Board
from live.domain.choices import Votes
from live.domain.event import MAX_METADATA_BYTES
from live.domain.packing import Field, Packing
from live.domain.text import nearest
from live.domain.window import Forever, Periods
from live.ingest import routing
from live.ingest.committer import Committer, Share, Wants
from tests.harness.boards import built
from tests.harness.clock import datetime_of
from tests.harness.ingest import make_key, scores, summary
from tests.harness.mutation import replaced
from tests.harness.producer import post
from tests.harness.server import serving
from tests.harness.settings import fresh_settings

RUNS = Packing((Field(name="levels", high=9),))


def board(name: str, *types: str, **choices: Any) -> Board:
    """A board without a window."""
    return built(**{"id": name, "title": name, "source": frozenset(types or {"like"}), "window": Forever(), **choices})


async def all_scores(client: httpx.AsyncClient) -> dict[str, dict[str, int]]:
    """The scores of every board."""
    boards = (await client.get("/v1/boards")).json()["boards"]
    return {found["board"]: await scores(client, found["board"]) for found in boards}


async def test_a_category_selects_among_the_boards_of_a_type(valkey_url: str) -> None:
    """An event is refused if no board of its type has its category. An event that names a board needs no category."""
    cats = board("cats", categories=frozenset({"cats"}))
    pets = board("pets", "like", "visit", categories=frozenset({"cats", "dogs"}))
    async with serving(fresh_settings(valkey_url), cats, pets) as client:
        answer = await post(
            client,
            {"key": "a", "category": "cats"}, {"key": "b", "category": "dogs"}, {"key": "c", "category": "birds"},
            {"key": "d"}, {"key": "e", "type": "visit", "category": "cats"}, {"key": "f", "board": "cats"},
        )  # fmt: skip
        assert summary(answer) == (4, 0, [(2, "type_unknown"), (3, "type_unknown")])
        assert await all_scores(client) == {"cats": {"a": 1, "f": 1}, "pets": {"a": 1, "b": 1, "e": 1}}
        wrong = await post(
            client, {"key": "a", "board": "cat"}, {"key": "a", "type": "vizit"}, {"key": "a", "type": "?"}
        )
        suggested = [each["detail"].partition("did you mean ")[2] for each in wrong["rejected"]]
        assert suggested == ["`cats`?", "`visit`?", ""]
        listed = [one["detail"].partition("there are the ")[2] for one in (*wrong["rejected"], *answer["rejected"])]
        assert answer["offsets"] == {"cats": 1, "pets": 1}
        assert listed == ["", "", "types: like, visit", "categories: cats, dogs", "categories: cats, dogs"]


async def test_a_single_like_with_a_category_feeds_the_boards_of_the_category(valkey_url: str) -> None:
    """The server may remember the board of likes without a category. A like with a category reaches both boards."""
    async with serving(
        fresh_settings(valkey_url), board("all"), board("cats", categories=frozenset({"cats"}))
    ) as client:
        for event in ({"key": "a"}, {"key": "b", "category": "cats"}):
            assert (await client.post("/v1/events", json=event)).json()["accepted"] == 1
        assert await all_scores(client) == {"all": {"a": 1, "b": 1}, "cats": {"b": 1}}


async def test_a_near_name_is_looked_for_once(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search among a hundred names takes a millisecond, and a thousand events can have the same mistake."""
    asked = []

    def counted(name: str, known: Collection[str]) -> str | None:
        asked.append(name)
        return nearest(name, known)

    monkeypatch.setattr(routing, "nearest", counted)
    async with serving(fresh_settings(valkey_url), board("cats"), board("dogs", "bark")) as client:
        wrong = (await post(client, *[{"key": "a", "type": "barc"}] * 50, {"key": "a"}))["rejected"]
        assert len(wrong) == 50
        assert {one["detail"].partition("; ")[2] for one in wrong} == {"did you mean `bark`?"}
    assert asked == ["barc", "barc"], (
        "the name was not compared once before and once after the server asked for new boards"
    )


async def test_an_api_key_learns_only_the_types_of_boards_that_it_may_feed_and_read(valkey_url: str) -> None:
    """Without the verb `read`, an API key gets no list of the types and categories of a private board."""
    secret = board("secret", "whisper", visibility="private", categories=frozenset({"cats"}))
    boards = (board("cats"), board("dogs", "bark"), secret)
    settings = fresh_settings(valkey_url)
    expected = [
        (await make_key(settings, name, boards=scope, verbs=verbs), types, categories)
        for name, scope, verbs, types, categories in (
            ("all", None, ("post",), "bark, like", ""),
            ("reader", None, ("post", "read"), "bark, like, whisper", "cats"),
            ("cats", ("cats",), ("post", "read"), "like", ""),
            ("blind", ("secret",), ("post",), "", ""),
        )
    ]
    async with serving(settings, *boards) as client:
        for key, types, categories in expected:
            client.headers["Authorization"] = f"Bearer {key}"
            wrong = ({"key": "a", "type": "?"}, {"key": "a", "type": "whisper", "category": "dogs"})
            refused = [one["detail"] for one in (await post(client, *wrong))["rejected"]]
            assert refused[0].partition("there are the types: ")[2] == types, key
            assert refused[1].partition("there are the categories: ")[2] == categories, key


async def test_no_suggestion_names_a_private_board_that_the_api_key_may_not_read(valkey_url: str) -> None:
    """An API key without the verb `read` may feed the board, but learns neither its id nor its type."""
    secret = board("secret", "whisper", visibility="private")
    settings = fresh_settings(valkey_url)
    expected = [
        (await make_key(settings, name, boards=scope, verbs=verbs), suggested)
        for name, scope, verbs, suggested in (
            ("all", None, ("post",), ["", ""]),
            ("listed", ("secret",), ("post",), ["", ""]),
            ("reader", None, ("post", "read"), ["`secret`?", "`whisper`?"]),
        )
    ]
    async with serving(settings, board("cats"), secret) as client:
        for key, suggested in expected:
            client.headers["Authorization"] = f"Bearer {key}"
            wrong = await post(client, {"key": "a", "board": "secrte"}, {"key": "a", "type": "whispre"})
            assert [one["detail"].partition("did you mean ")[2] for one in wrong["rejected"]] == suggested, key


async def test_a_board_that_is_created_gets_the_next_like(valkey_url: str) -> None:
    """What the server remembers of earlier requests does not keep a like from the new board."""
    async with serving(fresh_settings(valkey_url, anonymous_admin=True), board("posts")) as client:
        for _ in range(2):
            assert (await post(client, {"key": "a"}))["offsets"].keys() == {"posts"}
        assert (await client.put("/v1/boards/june", json={})).is_success
        assert (await post(client, {"key": "a"}))["offsets"].keys() == {"posts", "june"}


async def test_a_union_is_the_weighted_sum_of_its_boards(valkey_url: str) -> None:
    """Events may name the parts of the union, or reach them by type. Nobody posts to the union itself."""
    both = board("both", union={"likes": 1, "buys": 10}, source=frozenset())
    async with serving(fresh_settings(valkey_url), board("likes"), board("buys", "buy"), both) as client:
        likes: list[dict[str, Any]] = [{"key": "a", "id": "1"}, {"key": "a", "amount": 2}]
        answer = await post(client, *likes)
        assert (summary(answer), answer["offsets"]) == ((2, 0, []), {"likes": 1, "both": 1})
        answer = await post(
            client, {"key": "a", "type": "buy"}, {"key": "b", "board": "buys", "amount": -3}, {"key": "b"}, likes[0],
            {"key": "b", "board": "both"},
        )  # fmt: skip
        assert summary(answer) == (3, 1, [(4, "board_is_union")])
        for body in ([{"key": "c"}, {"key": "c"}], [{"key": "d", "type": "buy"}]):
            await post(client, *body)
        found = await all_scores(client)
    assert found["likes"] == {"a": 3, "b": 1, "c": 2}
    assert found["buys"] == {"a": 1, "b": -3, "d": 1}
    expected = {key: found["likes"].get(key, 0) + 10 * found["buys"].get(key, 0) for key in "abcd"}
    assert found["both"] == expected


async def test_an_event_that_feeds_two_boards_of_a_union_counts_with_both_weights(valkey_url: str) -> None:
    """The union gets one event with the sum of the weights, so that the event's id is used once."""
    both = board("both", union={"x": 2, "y": 3}, source=frozenset())
    async with serving(fresh_settings(valkey_url), board("x"), board("y"), both) as client:
        assert summary(await post(client, {"key": "a", "id": "1"}, {"key": "b"})) == (2, 0, [])
        assert summary(await post(client, {"key": "a", "id": "1"})) == (0, 1, [])
        assert await scores(client, "both") == {"a": 5, "b": 5}


async def test_a_weight_can_bring_an_amount_over_the_limit(valkey_url: str) -> None:
    """The event is refused on the union only, and the refusal names the union. An amount at the limit is accepted."""
    both = board("both", union={"x": 3, "y": 1}, source=frozenset(), max_amount=10**9)
    async with serving(fresh_settings(valkey_url), board("x"), board("y", "z"), both) as client:
        answer = await post(client, {"key": "a", "amount": 5 * 10**8}, {"key": "b"})
        assert summary(answer) == (2, 0, [(0, "amount_too_large", "both", True)])
        assert await scores(client, "both") == {"b": 3}
        answer = await post(
            client, {"key": "c", "type": "z", "amount": 10**9 + 1}, {"key": "d", "type": "z", "amount": 10**9}
        )
        assert summary(answer) == (1, 0, [(0, "amount_too_large", "y"), (0, "amount_too_large", "both")])


async def test_an_api_key_for_a_part_feeds_the_union(valkey_url: str) -> None:
    """A producer that may post to a board also changes its unions. An event that reaches no such board is refused."""
    both = board("both", union={"x": 1, "y": 1}, source=frozenset())
    settings = fresh_settings(valkey_url)
    key = await make_key(settings, "shop", boards=("x", "both"))
    async with serving(settings, board("x"), board("y", "like", "z"), both, key=key) as client:
        answer = await post(client, {"key": "a"}, {"key": "b", "type": "z"}, {"key": "c", "board": "both"})
        assert summary(answer) == (1, 0, [(1, "board_forbidden"), (2, "board_is_union")])
        assert await all_scores(client) == {"x": {"a": 1}, "y": {}, "both": {"a": 1}}


async def test_fields_are_for_boards_that_rank_by_them(valkey_url: str) -> None:
    """A board without fields uses the amount of the same event. Only a board with fields refuses invalid fields."""
    runs = board("runs", operator="best", score=RUNS)
    async with serving(fresh_settings(valkey_url), board("likes"), runs) as client:
        answer = await post(
            client, {"key": "a", "amount": 5, "fields": {"levels": 7}}, {"key": "b"},
            {"key": "c", "fields": {"levels": 7, "x": 1}}, {"key": "d", "fields": {"levels": 10}},
        )  # fmt: skip
        assert summary(answer) == (4, 0, [(index, "fields_invalid", "runs", True) for index in (1, 2, 3)])
        assert [re.split("[:;]", entry["detail"])[0] for entry in answer["rejected"]] == [
            "levels is missing", "unknown field 'x'", "levels is not a whole number from 0 to 9"
        ]  # fmt: skip
        assert await all_scores(client) == {"likes": {"a": 5, "b": 1, "c": 1, "d": 1}, "runs": {"a": 7}}


@pytest.mark.parametrize(
    "fields", ["{}", '{"levels":true}', '{"levels":1.5}', '{"levels":"1"}', '{"levels":null}', "[]", "7",
               '{"levels":9007199254740993}'],
)  # fmt: skip
async def test_invalid_fields_are_refused_by_index(valkey_url: str, fields: str) -> None:
    """The decoder or the board finds the invalid fields. Other events of the body count."""
    async with serving(fresh_settings(valkey_url), board("runs", operator="best", score=RUNS)) as client:
        body = f'[{{"key":"a","fields":{fields}}},{{"key":"b","fields":{{"levels":3}}}}]'
        response = await client.post("/v1/events", content=body, headers={"Content-Type": "application/json"})
        accepted, _, refused = summary(response.json())
        assert (accepted, [index for index, *_ in refused]) == (1, [0])
        assert refused[0][1] in {"fields_invalid", "event_invalid"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("{}", None), ('{"a":{"b":[1,"é",null]}}', None), ('{"a":"%s"}' % ("x" * (MAX_METADATA_BYTES - 8)), None),
        ('{"a":"%s"}' % ("x" * (MAX_METADATA_BYTES - 7)), "metadata_invalid"),
        *((text, "metadata_invalid") for text in ("[]", "null", '"x"', "7")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("others", [0, 1])
async def test_metadata_must_be_a_small_object(valkey_url: str, metadata: str, code: str | None, others: int) -> None:
    """The event may be the only one of a body, or one of several. Valid metadata is returned byte for byte."""
    async with serving(fresh_settings(valkey_url), board("set", operator="set")) as client:
        events = [f'{{"key":"a","amount":1,"metadata":{metadata}}}', *('{"key":"b","amount":1}' for _ in range(others))]
        response = await client.post(
            "/v1/events", content=f"[{','.join(events)}]", headers={"Content-Type": "application/json"}
        )
        assert summary(response.json()) == ((others, 0, [(0, code)]) if code else (others + 1, 0, []))
        if code is None:
            view = await client.get("/v1/boards/set/records/a")
            found = msgspec.json.decode(view.content, type=dict[str, msgspec.Raw])["metadata"]
            assert bytes(found) == metadata.encode()


async def test_votes_are_counted_and_refused_individually(valkey_url: str) -> None:
    """Votes within the quota count, whatever else is in the body."""
    contest = board("vote", votes=Votes(per_key=1, per_actor=2))
    async with serving(fresh_settings(valkey_url), contest) as client:
        votes = [("a", "me", 1), ("a", "me", 1), ("b", "me", 1), ("c", "me", 1), ("a", "you", 1), ("b", "you", -1)]
        answer = await post(
            client,
            *({"key": member, "actor": actor, "amount": amount} for member, actor, amount in votes),
            {"key": "z"},
        )
        assert summary(answer) == (
            3, 0, [(1, "quota_exceeded"), (3, "quota_exceeded"), (5, "vote_missing"), (6, "actor_required")],
        )  # fmt: skip
        assert await scores(client, "vote") == {"a": 2, "b": 1}
        answer = await post(client, {"key": "a", "actor": "me", "amount": -1}, {"key": "c", "actor": "me"})
        assert (summary(answer), await scores(client, "vote")) == ((2, 0, []), {"a": 1, "b": 1, "c": 1})


ADA: dict[str, Any] = {"key": "Ada", "actor": "me", "amount": -1}
BOB: dict[str, Any] = {"key": "Bob", "actor": "me"}
CHANGE: dict[str, Any] = {**BOB, "replaces": "Ada"}


@pytest.mark.parametrize("body", [[ADA, BOB], [BOB, ADA], [CHANGE]])
async def test_a_vote_can_be_changed_in_one_body(valkey_url: str, body: list[dict[str, Any]]) -> None:
    """The order in a body does not matter. Other votes for Ada stay."""
    contest = board("vote", votes=Votes(per_key=1, per_actor=1))
    async with serving(fresh_settings(valkey_url), contest) as client:
        await post(client, {"key": "Ada", "actor": "me"}, {"key": "Ada", "actor": "you"})
        assert summary(await post(client, *body)) == (len(body), 0, [])
        assert await scores(client, "vote") == {"Ada": 1, "Bob": 1}
        assert summary(await post(client, *body))[0] == 0, "a change counts again"
        assert await scores(client, "vote") == {"Ada": 1, "Bob": 1}


async def test_a_change_counts_as_a_whole_or_not_at_all(valkey_url: str) -> None:
    """If the new vote is refused, the old one stays. A sequence of votes in a body counts in its order."""
    contest = board("vote", votes=Votes(per_key=1, per_actor=2))
    async with serving(fresh_settings(valkey_url), contest) as client:
        await post(client, *({"key": member, "actor": "me"} for member in ("Ada", "Bob")))
        assert summary(await post(client, CHANGE)) == (0, 0, [(0, "quota_exceeded")])
        assert summary(await post(client, {**CHANGE, "key": "Cy", "replaces": "Di"})) == (0, 0, [(0, "vote_missing")])
        assert summary(await post(client, {"key": "Cy", "replaces": "Di"})) == (0, 0, [(0, "actor_required")])
        assert await scores(client, "vote") == {"Ada": 1, "Bob": 1}
        body = [{**BOB, "key": "Cy"}, {**BOB, "amount": -1}, {**BOB, "key": "Cy", "amount": -1}, CHANGE]
        assert summary(await post(client, *body)) == (3, 0, [(2, "vote_missing")])
        assert await scores(client, "vote") == {"Bob": 1, "Cy": 1}


async def test_votes_can_be_final(valkey_url: str) -> None:
    """Then nobody takes a vote back or changes it."""
    contest = board("vote", votes=Votes(per_actor=1, changes=False))
    async with serving(fresh_settings(valkey_url), contest) as client:
        answer = await post(client, {"key": "Ada", "actor": "me"}, ADA, CHANGE)
        assert summary(answer) == (1, 0, [(1, "votes_final"), (2, "votes_final")])
        assert await scores(client, "vote") == {"Ada": 1}


@pytest.mark.parametrize("others", [0, 1])
async def test_only_contests_take_changes(valkey_url: str, others: int) -> None:
    """The event may be the only one of a body, a CloudEvent, or one of several."""
    async with serving(fresh_settings(valkey_url), board("likes")) as client:
        answer = await post(client, CHANGE, *[{"key": "Ada"}] * others)
        assert summary(answer) == (others, 0, [(0, "replaces_invalid")])
        answer = await post(client, {**CHANGE, "replaces": "Bob"}, *[{"key": "Ada"}] * others)
        assert summary(answer) == (others, 0, [(0, "event_invalid")])
        event = {"specversion": "1.0", "id": "1", "source": "x", "type": "like", "subject": "Bob", "replaces": "Ada"}
        response = await client.post("/v1/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
        assert summary(response.json()) == (0, 0, [(0, "replaces_invalid")])


@pytest.mark.parametrize(
    ("opens", "closes", "code"),
    [
        (datetime_of(2**42), None, "not_open"),
        (None, datetime_of(5), "closed"),
        (datetime_of(5), datetime_of(2**42), None),
    ],
)
async def test_a_contest_that_is_not_open_refuses_votes(
    valkey_url: str, opens: datetime | None, closes: datetime | None, code: str | None
) -> None:
    """The store's clock decides."""
    contest = board("vote", votes=Votes(opens=opens, closes=closes), window=Periods(unit="year"))
    async with serving(fresh_settings(valkey_url), contest) as client:
        answer = await post(client, {"key": "a", "actor": "me"})
        assert summary(answer) == ((1, 0, []) if code is None else (0, 0, [(0, code)]))


async def test_an_event_for_many_boards_leaves_turns_to_others(valkey_url: str) -> None:
    """The server gives an event to a few of its boards at a time."""
    many = [board(f"b{number}") for number in range(300)]
    begun = asyncio.Event()
    submit = Committer.submit
    order = []

    def submitted(committer: Committer, share: Share, wants: Wants) -> None:
        begun.set()
        order.append(committer.state.board.id)
        submit(committer, share, wants)

    settings = fresh_settings(valkey_url, rate=0)  # with a rate, the other event could wait for credit from the store
    async with serving(settings, board("other", "visit"), *many) as client:
        await asyncio.gather(client.get("/healthz"), client.get("/healthz"))  # this opens two connections
        with replaced(Committer, "submit", submitted):
            large = asyncio.create_task(post(client, {"key": "a", "id": "1"}))
            await begun.wait()
            assert (await post(client, {"key": "a", "type": "visit"}))["offsets"] == {"other": 1}
            answer = await large
        assert (summary(answer), answer["offsets"]) == ((1, 0, []), {target.id: 1 for target in many})
        assert order.index("other") < len(many)
        again = await post(client, {"key": "a", "id": "1"})
        assert (summary(again), again["offsets"]) == ((0, 1, []), {})
        assert await scores(client, "b299") == {"a": 1}
