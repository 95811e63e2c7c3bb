"""The answer to a body, made from the outcomes of its boards, and calls of the intake without an HTTP request."""

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from live.auth.authenticator import Authenticator
from live.auth.rates import RateLimiter
from live.domain.board import Boards
from live.domain.decoding import DecodedBody
from live.domain.event import Answer, Identities, IncomingEvent, Rejection
from live.domain.limits import Client, PrefixLimits
from live.domain.producer import Principal, Verb
from live.domain.reader import BoardScope
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.http.parser import parse_head
from live.http.reply import Reply, problem_reply
from live.ingest.committer import PLAIN, Committed, Committer, Share, Wants
from live.ingest.intake import Intake
from live.ingest.refusals import Refusals
from live.ingest.routing import Counted, Posting
from live.store.board.ledger import Ledger
from live.store.board.write.slot_assignment import Placement
from live.store.connection.client import connect
from tests.harness.boards import changed, rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop

OWNERS = {"free": "", "own": "me", "theirs": "other", "secret": "", "total": ""}
PRIVATE = {"secret", "total"}
TOTAL = changed(rolling_board(board="total"), source=frozenset(), union={"free": 2})
BOARDS = Boards([
    msgspec.structs.replace(
        TOTAL if name == "total" else rolling_board(board=name),
        owner=owner,
        visibility="private" if name in PRIVATE else "public",
    )
    for name, owner in OWNERS.items()
])  # fmt: skip
HEAD = parse_head(b"POST /v1/events HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\r\n")
ME = Principal("me", None, frozenset({"post"}), 0, 0, "me")
READER = msgspec.structs.replace(ME, verbs=frozenset({"post", "read"}))
LIMITED = msgspec.structs.replace(READER, boards=BoardScope.of(["free", "theirs"]))
ANONYMOUS = msgspec.structs.replace(ME, id="")
FAULTS = (ProblemError("overloaded", ""), StoreUnavailableError("", unknown=True), EpochLostError(""), OSError())


class Sent(NamedTuple):
    """An event: the board that it names, whether it has an id, and its code on each board that it reaches."""

    named: str | None
    has_id: bool
    codes: dict[str, str | None]


class Case(NamedTuple):
    """A body, its producer and options, and the faults of boards."""

    producer: Principal
    sent: list[Sent]
    faults: dict[str, Exception]
    wants: Wants
    has_key: bool

    def reached(self, named: str | None) -> list[str] | str:
        """Return the boards that an event reaches, or the code of its refusal."""
        producer = self.producer
        known = [name for name in OWNERS if name not in PRIVATE or producer.feeds(name)]
        if named not in {None, *known}:
            return "board_unknown"
        if named == "total":
            return "board_is_union"
        allowed = [name for name in known if producer.boards is None or name in producer.boards]
        fed = [name for name in allowed if named in {None, name} and name != "total"]
        return [*fed, *(["total"] if "free" in fed else [])] or "board_forbidden"

    def may_read(self, board: str) -> bool:
        """Whether the producer may read a board."""
        return board not in PRIVATE or board in self.producer.opens

    def shows(self, board: str, named: str | None) -> bool:
        """Whether the producer may learn why a board refuses an event."""
        return named == board or (self.may_read(board) and OWNERS[board] in {"", self.producer.id})


sent = st.builds(
    Sent,
    st.sampled_from([None, None, *OWNERS, "gone"]),
    st.booleans(),
    st.fixed_dictionaries(dict.fromkeys(OWNERS, st.sampled_from([None, None, "duplicate", "late"]))),
)
cases = st.builds(
    Case,
    st.sampled_from([ME, READER, LIMITED, ANONYMOUS]),
    st.lists(sent, max_size=5),
    st.dictionaries(st.sampled_from(list(OWNERS)), st.sampled_from(FAULTS), max_size=2),
    st.builds(Wants, records=st.booleans(), strict=st.booleans()),
    st.booleans(),
)


class Given:
    """A committer whose outcome is given: a fault, or a code for each event that it gets."""

    def __init__(self, board: str, case: Case) -> None:
        self.board, self.case = board, case

    def submit(self, share: Share, wants: Wants) -> None:
        """Answer at once, or refuse to queue."""
        case, fault = self.case, self.case.faults.get(self.board)
        routes = [(one, case.reached(one.named)) for one in case.sent]
        mine = [one for one, route in routes if self.board in route and not isinstance(route, str)]
        assert share.producer == case.producer.id
        assert [amount for _, amount, *_ in share.entries] == [2 if self.board == "total" else 1] * len(mine)
        must_be_strict = case.wants.strict and all(case.shows(self.board, one.named) for one in mine)
        assert wants == msgspec.structs.replace(case.wants, strict=must_be_strict)
        if isinstance(fault, ProblemError):
            raise fault
        if fault is not None:
            share.reject(fault)
            return
        refused = {place: code for place, one in enumerate(mine) if (code := one.codes[self.board])}
        placements = {place: Placement(place, None) for place in range(len(mine)) if place not in refused}
        share.resolve(Committed(None if len(refused) == len(mine) else 7, refused, placements))


class Expected(NamedTuple):
    """An answer. Each refusal is its index, its code, its board, and whether another board has counted the event."""

    accepted: int
    duplicates: list[int]
    refusals: list[tuple[int, str, str | None, bool]]
    offsets: set[str]
    counted: list[tuple[int, str, bool]]


def expected(case: Case) -> Expected | list[Exception]:
    """The answer that the rules give. If the whole request fails: the faults, any of which may be the result."""
    routes = {index: case.reached(one.named) for index, one in enumerate(case.sent)}
    refusals: list[tuple[int, str, str | None, bool]] = [
        (index, route, None, False) for index, route in routes.items() if isinstance(route, str)
    ]
    if case.wants.strict and refusals:
        left = routes.keys() - {index for index, *_ in refusals}
        return Expected(0, [], [*refusals, *((index, "not_counted", None, False) for index in left)], set(), [])
    taken = {index: route for index, route in routes.items() if not isinstance(route, str)}
    reached = set(chain.from_iterable(taken.values()))
    failed = [case.faults[name] for name in reached if name in case.faults]
    if failed and (len(failed) == len(reached) or any(isinstance(fault, OSError) for fault in failed)):
        return failed
    accepted, duplicates, offsets, counted = 0, [], set(), []
    for index, names in taken.items():
        named, _, codes = case.sent[index]
        found = {name: "board_unavailable" if name in case.faults else codes[name] for name in names}
        readable = {name: code for name, code in found.items() if case.may_read(name)}
        offsets |= {name for name, code in readable.items() if code is None}
        counted += [(index, name, code is None) for name, code in readable.items() if code in {None, "duplicate"}]
        # For a producer that may neither read nor feed it, a private union does not exist.
        told = {name: code for name, code in found.items() if case.may_read(name) or case.producer.feeds(name)}
        is_known = "duplicate" in told.values()
        is_accepted = None in told.values()
        accepted += is_accepted
        if is_known and not is_accepted:
            duplicates.append(index)
        is_counted = is_accepted or is_known
        shown = [
            (index, code, name if case.may_read(name) else None, is_counted)
            for name, code in told.items()
            if code not in {None, "duplicate"} and case.shows(name, named)
        ]
        refusals += shown
        if not shown and not is_counted:
            refusals.append((index, "type_unknown", None, False))
    return Expected(accepted, duplicates, refusals, offsets, counted)


def answer(case: Case) -> tuple[Answer | Exception, list[Counted]]:
    """Post the body of a case. Return the answer, and the events that boards counted."""
    results: list[Answer | Exception] = []
    counted: list[Counted] = []
    incoming = [
        IncomingEvent(member=f"k{index}", id=f"{index}" if one.has_id else UNSET, board=one.named or UNSET)
        for index, one in enumerate(case.sent)
    ]
    is_plain = all(one.named is None and not one.has_id for one in case.sent)
    likes = [event.member for event in incoming] if incoming and is_plain else None
    body, producer = DecodedBody(incoming, list(range(len(incoming))), [], likes), case.producer
    key, sample = "key" if case.has_key else None, cast("Any", Sample())
    posting = Posting(BOARDS, producer, Identities(producer.id), body, results.append, sample, key)
    posting.wants, posting.counted = case.wants, counted
    posting.route()
    committers: Any = {name: Given(name, case) for name in OWNERS}
    posting.send(committers, cast("RateLimiter", None))  # no board has limits, so the rate limiter is not used
    (result,) = results
    return result, counted


@given(cases)
def test_the_outcomes_of_boards_become_one_answer(case: Case) -> None:
    """An event is accepted if at least one board has counted it.

    A producer learns what a board of another producer refuses only if the event names this board. It learns nothing
    of a private board that it may neither read nor feed.
    """
    (result, counted), wanted = answer(case), expected(case)
    if isinstance(result, Exception):
        assert isinstance(wanted, list)
        assert result in wanted
        assert getattr(result, "unknown", False) == any(getattr(fault, "unknown", False) for fault in wanted)
        return
    assert isinstance(wanted, Expected)
    assert (result.accepted, result.duplicate, set(result.offsets)) == (
        wanted.accepted, len(wanted.duplicates), wanted.offsets
    )  # fmt: skip
    assert result.duplicates == (tuple(wanted.duplicates) if wanted.accepted and wanted.duplicates else UNSET)
    refusals = [(one.index, one.code, one.board or None, one.counted is True) for one in result.rejected]
    assert sorted(refusals, key=str) == sorted(wanted.refusals, key=str)
    assert [index for index, *_ in refusals] == sorted(index for index, *_ in refusals)
    records = [(one.index, one.board, one.placement is not None) for one in counted]
    assert sorted(records) == (sorted(wanted.counted) if case.wants.records else [])
    assert all(one.member == f"k{one.index}" for one in counted)


class Exhausted:
    """A rate limiter with nothing left."""

    def spend(self, limits: Client, _events: int) -> None:
        """Refuse, and name the prefix."""
        raise ProblemError("rate_exceeded", f"{limits.whom} exceed their rate", retry_after=2)


def test_a_refusal_names_only_a_prefix_that_the_producer_may_know() -> None:
    """A producer may know the prefix of a board that it may read, or that its API key lists."""
    scope = BoardScope.of(["acme-*"])
    posts, reads = frozenset[Verb]({"post"}), frozenset[Verb]({"post", "read"})
    for visibility, boards, verbs, is_named in (
        ("public", None, posts, True),
        ("private", None, posts, False),
        ("private", None, reads, True),
        ("private", scope, posts, True),
    ):
        limited = msgspec.structs.replace(
            rolling_board(board="acme-a"),
            visibility=visibility,
            limits=PrefixLimits(prefix="acme-", rate=1),
        )
        results: list[Answer | Exception] = []
        producer = msgspec.structs.replace(ME, boards=boards, verbs=verbs)
        body = DecodedBody([IncomingEvent(member="a")], [0], [])
        posting = Posting(Boards([limited]), producer, Identities("me"), body, results.append, cast("Any", Sample()))
        posting.route()
        posting.send({"acme-a": cast("Committer", None)}, cast("RateLimiter", Exhausted()))
        (problem,) = results
        assert isinstance(problem, ProblemError)
        assert (problem.code, problem.retry_after) == ("rate_exceeded", 2)
        assert ("acme" in problem.detail) is is_named
        assert is_named or "try again in 2 s" in problem.detail


@pytest.mark.parametrize(("boards", "kinds", "suggested"), [(100, 3, 3), (100, 4, 3), (101, 1, 0)])
def test_only_a_few_refusals_suggest_a_type(boards: int, kinds: int, suggested: int) -> None:
    """Only the first three types of refused events in a body get a suggestion, and only with at most 100 boards."""
    results: list[Answer | Exception] = []
    events = [IncomingEvent(member="a", type=f"lik{number}") for number in range(kinds)]
    body = DecodedBody(events, list(range(kinds)), [])
    known = Boards([rolling_board(board=f"b{number}") for number in range(boards)])
    posting = Posting(known, ME, Identities("me"), body, results.append, cast("Any", sample := Sample()))
    posting.route()
    posting.send({}, cast("RateLimiter", None))
    (answer,) = results
    assert isinstance(answer, Answer)
    assert sum("did you mean `like`?" in one.detail for one in answer.rejected) == suggested
    assert sample.noted == [("me", [one.index for one in answer.rejected])] == [("me", list(range(kinds)))]


class Sample:
    """A sample that only notes what it is given."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, list[int]]] = []

    def note(self, producer: str, _body: DecodedBody, rejected: Sequence[Rejection]) -> None:
        self.noted.append((producer, [one.index for one in rejected]))


def test_a_body_that_is_answered_leaves_no_garbage() -> None:
    """A request makes no reference cycles. Collecting them would take longer than the whole request."""
    gc.collect()
    gc.disable()
    try:
        event = Sent(None, has_id=False, codes=dict.fromkeys(OWNERS))
        result, _ = answer(Case(READER, [event], {}, PLAIN, has_key=False))
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert result == Answer(1, 0, (), dict.fromkeys(OWNERS, 7))


@pytest.fixture
async def intake(valkey_url: str) -> AsyncIterator[Intake]:
    """An intake for one board, whose committer runs."""
    settings = fresh_settings(valkey_url, max_body=100)
    client = connect(valkey_url, settings)
    ledger = Ledger(client, rolling_board(), settings)
    committer = Committer(ledger.writer, ledger.rotator)
    authenticator, rates = Authenticator(client, settings), RateLimiter(client, settings)
    committers = {"posts": committer}
    running = asyncio.create_task(committer.run())
    boards = Boards([ledger.state.board])
    refusals = Refusals(client)
    yield Intake(settings, boards, committers, authenticator, rates, _unavailable, refusals=refusals)
    await stop(running)
    await client.aclose()


def _unavailable(answer: Any) -> None:
    """Answer that new boards can't be asked for, because the store is away."""
    answer(StoreUnavailableError("away"))


async def test_an_event_of_the_server_itself_counts(intake: Intake) -> None:
    """Such an event needs no body."""
    assert await intake.count(ME, IncomingEvent(member="a")) == Answer(1, 0, (), {"posts": 1})
    late = await intake.count(ME, IncomingEvent(member="a", time=datetime(2020, 1, 1, tzinfo=UTC)))
    assert [(one.index, one.code) for one in late.rejected] == [(0, "late")]


async def test_a_plain_body_is_answered_with_the_fault_of_its_board(intake: Intake) -> None:
    """The event is not counted (`store_unavailable`), or may have been counted (`outcome_unknown`)."""
    head = intake.check(HEAD, ME)
    for unknown, code in ((False, "store_unavailable"), (True, "outcome_unknown")):
        reply = intake.reply_to_plain(head, b'{"key":"a"}', StoreUnavailableError("away", unknown=unknown))
        assert (reply.status, msgspec.json.decode(reply.body)["code"]) == (503, code)


async def test_a_body_in_pieces_is_collected_up_to_the_limit(intake: Intake) -> None:
    """A body with one byte more than the limit is refused."""

    async def pieces(*sizes: int) -> AsyncIterator[bytes]:
        for size in sizes:
            yield b"x" * size

    assert await intake.collect(pieces(60, 40)) == b"x" * 100
    with pytest.raises(ProblemError) as caught:
        await intake.collect(pieces(60, 41))
    assert caught.value.code == "body_too_large"


async def test_a_body_for_an_unknown_board_fails_while_boards_can_not_be_asked_for(intake: Intake) -> None:
    """The producer may try again. No task is left behind."""
    for amount in (1, 900):
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        body = msgspec.json.encode([{"key": "a", "board": "new"}] * amount)
        head = intake.check(HEAD, ME)
        intake.submit(head, body, answer.set_result)
        reply = await asyncio.wait_for(answer, 60)
        assert (reply.status, msgspec.json.decode(reply.body)["code"]) == (503, "store_unavailable")
        assert intake._tasks == set()


def test_an_error_is_answered_with_when_to_try_again() -> None:
    """The time to wait is longer for a board that the store lost than for an unavailable store."""
    for error, code, seconds in (
        (EpochLostError("x"), "epoch_lost", b"60"), (StoreUnavailableError("x"), "store_unavailable", b"2"),
        (StoreUnavailableError("x", unknown=True), "outcome_unknown", b"2"), (OSError(), "internal_error", None),
    ):  # fmt: skip
        reply = problem_reply(error)
        assert (msgspec.json.decode(reply.body)["code"], dict(reply.extra).get(b"retry-after")) == (code, seconds)
