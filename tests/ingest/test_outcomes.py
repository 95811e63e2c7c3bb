"""The answer to a body, made from the outcomes of its boards, and calls of the intake without an HTTP request."""

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from live.auth.authenticator import Authenticator
from live.auth.rate_limiter import RateLimiter
from live.domain.board import Boards
from live.domain.decoding import DecodedBody
from live.domain.event import Answer, Identities, IncomingEvent, Rejection
from live.domain.producer import Principal
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.ingest.committer import Committed, Committer, Share, Wants
from live.ingest.intake import Intake
from live.ingest.posting import Posting
from live.ingest.refusals import Refusals
from live.ingest.replies import Reply, problem_reply
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.registry.idempotency import StoredResponses
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop

OWNERS = {"free": "", "own": "me", "theirs": "other"}
BOARDS = Boards([msgspec.structs.replace(rolling_board(board=name), owner=owner) for name, owner in OWNERS.items()])
ME = Principal("me", None, frozenset({"post"}), 0, 0, "me")
codes = st.sampled_from([None, None, "duplicate", "late"])
events = st.lists(
    st.tuples(st.sampled_from([None, *OWNERS]), st.fixed_dictionaries(dict.fromkeys(OWNERS, codes))), max_size=5
)
FAULTS = (ProblemError("overloaded", ""), StoreUnavailableError("", unknown=True), EpochLostError(""), OSError())
faults = st.dictionaries(st.sampled_from(list(OWNERS)), st.sampled_from(FAULTS))


class Given:
    """A committer whose outcome is given: a fault, or a code for each event that it gets."""

    def __init__(self, board: str, outcomes: list[Any], fault: Exception | None) -> None:
        self.board, self.outcomes, self.fault = board, outcomes, fault

    def submit(self, share: Share, _wants: Wants) -> None:
        """Answer at once, or refuse to queue."""
        if isinstance(self.fault, ProblemError):
            raise self.fault
        if self.fault is not None:
            share.reject(self.fault)
            return
        mine = [codes[self.board] for board, codes in self.outcomes if board in {None, self.board}]
        assert len(share.entries) == len(mine)
        refused = {index: code for index, code in enumerate(mine) if code}
        share.resolve(Committed(None if len(refused) == len(mine) else 7, refused))


def expected(outcomes: list[Any], faults: dict[str, Exception]) -> Any:
    """The answer by the rules: accepted, the indexes of duplicates, the refusals, and boards that counted.

    Each refusal is its index, its code, its board, and whether another board has counted the event.
    """
    reached = {name for board, _ in outcomes for name in ([board] if board else OWNERS)}
    failed = [faults[name] for name in OWNERS if name in faults and name in reached]
    if failed and (len(failed) == len(reached) or any(isinstance(fault, OSError) for fault in failed)):
        return "fault"
    accepted = 0
    duplicates, refusals = [], []
    counted = set()
    for index, (named, codes) in enumerate(outcomes):
        found = {
            name: "board_unavailable" if name in faults else codes[name] for name in ([named] if named else OWNERS)
        }
        counted |= {name for name, code in found.items() if code is None}
        accepted += None in found.values()
        is_counted = not set(found.values()).isdisjoint({None, "duplicate"})
        if is_counted and None not in found.values():
            duplicates.append(index)
        shown = [(index, code, name, is_counted) for name, code in found.items()
                 if code not in {None, "duplicate"} and (OWNERS[name] != "other" or named)]  # fmt: skip
        refusals += shown
        if not shown and not is_counted:
            refusals.append((index, "type_unknown", None, False))
    return accepted, duplicates, refusals, counted


@given(events, faults)
def test_the_outcomes_of_boards_become_one_answer(outcomes: list[Any], faults: dict[str, Exception]) -> None:
    """An event counts if one board has counted it. What the board of another producer refuses stays hidden."""
    results: list[Answer | Exception] = []
    incoming = [IncomingEvent(key="a", id=str(n), board=board or UNSET) for n, (board, _) in enumerate(outcomes)]
    body = DecodedBody(incoming, list(range(len(incoming))), [])
    posting = Posting(BOARDS, ME, Identities("me"), body, results.append, cast("Any", Sample()))
    posting.route()
    committers: Any = {name: Given(name, outcomes, faults.get(name)) for name in OWNERS}
    posting.send(committers, cast("RateLimiter", None))  # no board has limits, so the rate limiter is not used
    (result,) = results
    wanted = expected(outcomes, faults)
    if isinstance(result, Exception):
        assert wanted == "fault"
        assert result in faults.values()
        unknown = [fault for fault in faults.values() if isinstance(fault, StoreUnavailableError)]
        reached = [board for board, _ in outcomes]
        if unknown and None in reached:
            assert result in unknown
        return
    refusals = [(one.index, one.code, one.board, one.counted is True) for one in result.rejected]
    if result.accepted and result.duplicate:
        assert result.duplicates == tuple(wanted[1])
    else:
        assert result.duplicates is UNSET
    assert (result.accepted, result.duplicate, sorted(refusals, key=str), set(result.offsets)) == (
        wanted[0], len(wanted[1]), sorted(wanted[2], key=str), wanted[3]
    )  # fmt: skip
    assert [index for index, *_ in refusals] == sorted(index for index, *_ in refusals)


@pytest.mark.parametrize(("boards", "kinds", "suggested"), [(100, 3, 3), (100, 4, 3), (101, 1, 0)])
def test_only_a_few_refusals_suggest_a_type(boards: int, kinds: int, suggested: int) -> None:
    """Only the first kinds of refused events in a body get a suggestion, and only if there are few boards to search."""
    results: list[Answer | Exception] = []
    events = [IncomingEvent(key="a", type=f"lik{number}") for number in range(kinds)]
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
    """A request makes no reference cycles, because a garbage collection takes longer than the whole request."""
    gc.collect()
    gc.disable()
    try:
        test_the_outcomes_of_one_event_for_three_boards()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_outcomes_of_one_event_for_three_boards() -> None:
    """All boards count the event, so the answer has no refusals."""
    results: list[Answer | Exception] = []
    body = DecodedBody([IncomingEvent(key="a")], [0], [], ["a"])
    posting = Posting(BOARDS, ME, Identities("me"), body, results.append, cast("Any", Sample()))
    posting.route()
    committers: Any = {name: Given(name, [(None, dict.fromkeys(OWNERS))], None) for name in OWNERS}
    posting.send(committers, cast("RateLimiter", None))
    assert results == [Answer(1, 0, (), dict.fromkeys(OWNERS, 7))]


@pytest.fixture
async def intake(valkey_url: str) -> AsyncIterator[Intake]:
    """An intake for one board, whose committer runs."""
    settings = fresh_settings(valkey_url, max_body=100)
    client = connect(valkey_url, settings)
    ledger = Ledger(client, rolling_board(), settings)
    committer = Committer(ledger.writer, ledger.rotator, settings)
    authenticator, rates = Authenticator(client, settings), RateLimiter(client, settings)
    committers = {"posts": committer}
    running = asyncio.create_task(committer.run())
    boards = Boards([ledger.state.board])
    answers, refusals = StoredResponses(client, settings), Refusals(client, settings.key_prefix)
    yield Intake(settings, boards, committers, authenticator, rates, answers, _unavailable, refusals=refusals)
    await stop(running)
    await client.aclose()


def _unavailable(answer: Any) -> None:
    """Answer that new boards can't be asked for, because the store is away."""
    answer(StoreUnavailableError("away"))


async def test_an_event_of_the_server_itself_counts(intake: Intake) -> None:
    """Such an event needs no body."""
    assert await intake.count(ME, IncomingEvent(key="a")) == Answer(1, 0, (), {"posts": 1})
    late = await intake.count(ME, IncomingEvent(key="a", time=datetime(2020, 1, 1, tzinfo=UTC)))
    assert [(one.index, one.code) for one in late.rejected] == [(0, "late")]


async def test_a_plain_body_is_answered_with_the_fault_of_its_board(intake: Intake) -> None:
    """The event of the body is not counted (`store_unavailable`), or may be (`outcome_unknown`)."""
    head = intake.read_head(ME, [], {b"content-type": b"application/json"})
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
    """The producer may try again. A large body that waits for its turn leaves no task behind."""
    for amount in (1, 900):
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        body = msgspec.json.encode([{"key": "a", "board": "new"}] * amount)
        head = intake.read_head(ME, [], {b"content-type": b"application/json"})
        intake.submit(head, body, answer.set_result)
        reply = await asyncio.wait_for(answer, 30)
        assert (reply.status, msgspec.json.decode(reply.body)["code"]) == (503, "store_unavailable")
        assert (intake._slow, intake._tasks) == (0, set())


def test_an_error_is_answered_with_when_to_try_again() -> None:
    """The time is longer for a board that the store lost than for an unavailable store."""
    for error, code, seconds in (
        (EpochLostError("x"), "epoch_lost", b"60"), (StoreUnavailableError("x"), "store_unavailable", b"2"),
        (StoreUnavailableError("x", unknown=True), "outcome_unknown", b"2"), (OSError(), "internal_error", None),
    ):  # fmt: skip
        reply = problem_reply(error)
        assert (msgspec.json.decode(reply.body)["code"], dict(reply.extra).get(b"retry-after")) == (code, seconds)
