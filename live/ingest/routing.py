"""Routes the events of one body to their boards, and merges the outcomes into one answer."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from live.auth.rates import RateLimiter
from live.domain.board import Board, Boards
from live.domain.choices import DEFAULT_TYPE
from live.domain.decoding import DecodedBody
from live.domain.event import (
    MAX_DETAIL,
    Answer,
    Entry,
    Extra,
    Identities,
    IncomingEvent,
    Likes,
    Rejection,
    entries_of,
    entry_of,
)
from live.domain.limits import PrefixLimits
from live.domain.producer import LIKES, Principal
from live.domain.reader import ALL_BOARDS, NO_BOARDS, BoardScope
from live.domain.text import nearest
from live.errors import REFUSALS, EpochLostError, ProblemError, StoreUnavailableError
from live.ingest.committer import MOST_RECORDS, PLAIN, Committed, Committer
from live.ingest.refusals import Refusals
from live.metrics import EVENTS_DUPLICATE, EVENTS_REJECTED
from live.store.board.write.slot_assignment import Placement

_BOARDS_PER_TURN: Final = 8  # boards in one turn of the event loop; each takes up to a quarter of a millisecond
_MOST_SUGGESTIONS: Final = 3  # maximum suggestions for the events of one body
_MOST_COMPARED: Final = 100  # maximum boards with which a name is compared; each comparison takes some microseconds
_LONGEST_LIST: Final = 200  # maximum characters of a list of names; the refusal of each event can have such a list
_LISTING: Final = "GET /v1/boards lists the boards that you may read, with their types and categories"
_PLAIN: Final = (UNSET, UNSET, UNSET)
_UNKNOWN: Final = {"board_unknown", "type_unknown"}  # refusals that a new board can change
_BOARD_FAULTS: Final = (ProblemError, StoreUnavailableError, EpochLostError)


Kind = tuple[str | UnsetType, str | UnsetType, str | UnsetType]
"""The board, the type and the category of an event."""
OnResult = Callable[[Answer | Exception], None]


class _Share:
    """The part of a body for one board: the entries and their indexes in the body, then the outcome.

    `details` has explanations of some refusals, by the index of the event.
    """

    __slots__ = (
        "_posting", "board", "details", "entries", "fault", "indexes", "outcome", "producer",
    )  # fmt: skip

    def __init__(self, posting: "Posting", board: str, producer: str) -> None:
        self._posting = posting
        self.board = board
        self.producer = producer
        self.details: dict[int, str] = {}
        self.indexes: Sequence[int] = ()
        self.entries: Sequence[Entry] = ()
        self.outcome = Committed(None, {})
        self.fault: Exception | None = None

    def resolve(self, committed: Committed) -> None:
        self.outcome = committed
        self._posting.received()

    def reject(self, error: Exception) -> None:
        self.fault = error
        self.outcome = Committed(None, dict.fromkeys(range(len(self.entries)), "board_unavailable"))
        self._posting.received()


class Counted(msgspec.Struct, frozen=True):
    """An event that a board has counted, now or before. `placement` is None for a duplicate."""

    index: int
    board: str
    member: str
    placement: Placement | None


class Posting:
    """The decoded events of one body.

    `on_result` is called once with the outcome. `refusals` samples refused events. With `idempotency_key`, each event
    without an id gets an identity from the key. If the options in `wants` ask for records, `counted` gets the events
    that counted.
    """

    __slots__ = (
        "_boards", "_body", "_idempotency_key", "_identities", "_left", "_on_result",
        "_producer", "_rejected", "_sampled", "_shares", "_unknown", "counted", "wants",
    )  # fmt: skip

    def __init__(
        self,
        boards: Boards,
        producer: Principal,
        identities: Identities,
        body: DecodedBody,
        on_result: OnResult,
        refusals: Refusals,
        idempotency_key: str | None = None,
    ) -> None:
        self.wants = PLAIN
        self._sampled = refusals
        self.counted: list[Counted] = []
        self._boards = boards
        self._producer = producer
        self._body = body
        self._on_result = on_result
        self._idempotency_key = idempotency_key
        self._identities = identities
        self._rejected = [*body.rejections]  # a new list, because another posting may route the body again
        self._shares: dict[str, _Share] = {}
        self._unknown: dict[Kind, str] = {}  # the kinds that no board takes, each with its explanation

    def send(self, committers: dict[str, Committer], rates: RateLimiter) -> None:
        """Submit the share of each board, after `route`. Boards whose prefix exceeds its rate count nothing."""
        shares = [(committers[share.board], share) for share in self._shares.values()]
        self._left = len(shares)
        if self.wants.records and sum(len(share.entries) for share in self._visible()) > MOST_RECORDS:
            detail = f"with `rank=true`, a body may feed {MOST_RECORDS:,} records: one for each event on each board"
            self._on_result(ProblemError("too_many_events", detail))
            return
        if self.wants.strict and self._rejected:
            # At least one event is invalid, or no board takes it. So no event counts.
            named = {rejection.index for rejection in self._rejected}
            left = [index for index in self._body.indexes if index not in named]
            self._rejected += [Rejection(index, "not_counted", REFUSALS["not_counted"]) for index in left]
            self._shares.clear()
            shares = []
        if not shares:
            self._on_result(self._answer())
            return
        if faults := self._spend(rates):
            refused = [share for _, share in shares if share.board in faults]
            shares = [(committer, share) for committer, share in shares if share.board not in faults]
            for share in refused:
                share.reject(faults[share.board])
        if shares:
            self._submit(shares)

    def _spend(self, rates: RateLimiter) -> Mapping[str, ProblemError]:
        """Charge the events to the rates of prefixes. Return the refusals of boards that exceed such a rate."""
        limited: dict[PrefixLimits, list[_Share]] = {}
        for share in self._shares.values():
            limits = self._boards.by_id[share.board].limits
            if limits is not None and limits.rate:
                limited.setdefault(limits, []).append(share)
        faults: dict[str, ProblemError] = {}
        for limits, shares in limited.items():
            try:
                rates.spend(limits.client, sum(len(share.entries) for share in shares))
            except ProblemError as problem:
                faults |= {share.board: self._visible_fault(problem, share.board) for share in shares}
        return faults

    def _visible_fault(self, problem: ProblemError, board: str) -> ProblemError:
        """Remove the prefix from a refusal for a producer that may not know of the board."""
        if self._may_read(board) or (self._producer.is_limited and self._producer.feeds(board)):
            return problem
        detail = f"boards that take these events exceed their rate; try again in {problem.retry_after} s"
        return ProblemError(problem.code, detail, retry_after=problem.retry_after)

    def _submit(self, shares: Sequence[tuple[Committer, _Share]]) -> None:
        """Submit some shares now, and the rest in later turns of the event loop, so that other requests get a turn."""
        for committer, share in shares[:_BOARDS_PER_TURN]:
            try:
                wants = self.wants
                if wants.strict:  # a board whose refusals the producer must not see is not strict
                    is_strict = self._hidden_on(share.board).isdisjoint(share.indexes)
                    wants = msgspec.structs.replace(wants, strict=is_strict)
                committer.submit(share, wants)
            except ProblemError as error:
                share.reject(error)
        if rest := shares[_BOARDS_PER_TURN:]:
            asyncio.get_running_loop().call_soon(self._submit, rest)

    def _hidden_on(self, board: str) -> AbstractSet[int]:
        """Return the indexes of events that do not name the board, if the producer must not learn its refusals."""
        owner = self._boards.by_id[board].owner
        if self._may_read(board) and owner in {"", self._producer.id}:
            return frozenset()
        pairs = zip(self._body.indexes, self._body.events, strict=True)
        return {index for index, event in pairs if event.board != board}

    def receive(self, outcome: Committed | Exception) -> None:
        """Take the outcome of a body with one event for one board, which was submitted without `send`."""
        self.route()
        self._left = 1
        (share,) = self._shares.values()
        if isinstance(outcome, Committed):
            share.resolve(outcome)
        else:
            share.reject(outcome)

    def received(self) -> None:
        """Take the outcome of one more board. When all boards have an outcome, report the result."""
        self._left -= 1
        if self._left:
            return
        faults = [share.fault for share in self._shares.values() if share.fault is not None]
        outcome: Answer | Exception
        if not faults or (len(faults) < len(self._shares) and all(isinstance(each, _BOARD_FAULTS) for each in faults)):
            # If only some of the boards failed, the answer refuses only their events.
            outcome = self._answer()
        else:
            # An error after which the store may have counted events takes precedence.
            outcome = max(faults, key=lambda fault: getattr(fault, "unknown", False))
        self._shares.clear()  # this breaks a reference cycle, so that the garbage collector has no work
        self._on_result(outcome)

    def route(self) -> AbstractSet[Kind]:
        """Add each event to the shares of its boards. Return the kinds of events that only a new board may take."""
        body = self._body
        kinds = {_PLAIN} if body.likes else {(event.board, event.type, event.category) for event in body.events}
        if len(kinds) == 1:  # all events go to the same boards
            (kind,) = kinds
            targets = self._shares_for(*kind)
            if isinstance(targets, str):
                detail = self._explain(targets, kind)
                self._rejected.extend(Rejection(index, targets, detail) for index in body.indexes)
                return self._unknown.keys()
            likes = body.likes if self._idempotency_key is None else None
            entries: Sequence[Entry] = Likes(likes) if likes else self._entries()
            widest = 1 if body.likes else max(abs(entry[1]) for entry in entries)
            has_amounts = all(event.amount is not UNSET for event in body.events)
            for share, target, weight in targets:
                share.indexes, share.entries = body.indexes, entries
                if not self._is_plain_for(target, weight, widest, has_amounts=has_amounts):
                    triples = zip(body.indexes, body.events, entries, strict=True)
                    share.entries = [self._entry_for(share, target, weight, *triple) for triple in triples]
            return self._unknown.keys()
        parts: dict[_Share, tuple[list[int], list[Entry]]] = {}
        for index, event, entry in zip(body.indexes, body.events, self._entries(), strict=True):
            targets = self._shares_for(event.board, event.type, event.category)
            if isinstance(targets, str):
                self._rejected.append(Rejection(index, targets, self._explain(targets, _kind(event))))
                continue
            for share, board, weight in targets:
                indexes, own = parts.setdefault(share, ([], []))
                indexes.append(index)
                is_plain = self._is_plain_for(board, weight, abs(entry[1]), has_amounts=event.amount is not UNSET)
                own.append(entry if is_plain else self._entry_for(share, board, weight, index, event, entry))
        for share, (indexes, own) in parts.items():
            share.indexes, share.entries = indexes, own
        return self._unknown.keys()

    def _is_plain_for(self, board: Board, weight: int, widest: int, *, has_amounts: bool) -> bool:
        """Tell whether a board takes entries unchanged. `widest` is the largest absolute amount."""
        if weight != 1 or board.packing is not None or self._lacks_ticket(board):
            return False
        return has_amounts if board.operator != "incr" else widest <= limit_of(board, self._producer)

    def _entry_for(
        self, share: _Share, board: Board, weight: int, index: int, event: IncomingEvent, entry: Entry
    ) -> Entry:
        """Make the entry of an event for one board. A refused event is submitted too: it may be a duplicate."""
        member, amount, time, identity, extra = entry
        code = None
        if self._lacks_ticket(board):
            code = "ticket_missing"
        elif board.packing is not None:
            fields = {} if event.fields is UNSET else event.fields
            if weight != 1:  # the event feeds several parts of a union
                fields = {name: value * weight for name, value in fields.items()}
            most = self._producer.max_amount if board.sums is not None else None
            try:
                amount = board.packing.pack(fields)
            except ValueError as error:
                code, share.details[index] = "fields_invalid", str(error)[:MAX_DETAIL]
            else:
                if most is not None and any(abs(value) > most for value in fields.values()):
                    amount, code = 0, "amount_too_large"
                    share.details[index] = f"board {board.id} takes fields from {-most} to {most} of this producer"
        elif board.operator == "incr":
            limit = limit_of(board, self._producer)
            amount *= weight
            if abs(amount) > limit:
                amount, code = 0, "amount_too_large"
                share.details[index] = f"board {board.id} takes amounts from {-limit} to {limit} of this producer"
        elif event.amount is UNSET:  # the default amount would be a score that no member has reached
            code = "amount_required"
        if code is not None:
            extra = msgspec.structs.replace(extra or Extra(), refused=code)
        return (member, amount, time, identity, extra)

    def _lacks_ticket(self, board: Board) -> bool:
        return board.votes is not None and board.votes.tickets and self._producer.id != LIKES

    def _entries(self) -> Sequence[Entry]:
        body, identities = self._body, self._identities
        if self._idempotency_key is None:
            return entries_of(body.events, identities.of)
        of_part = identities.of_parts(self._idempotency_key)
        return [
            entry_of(event, of_part(index, event) if event.id is UNSET else identities.of(event))
            for index, event in zip(body.indexes, body.events, strict=True)
        ]

    def _shares_for(
        self, board: str | UnsetType, kind: str | UnsetType, category: str | UnsetType
    ) -> Sequence[tuple[_Share, Board, int]] | str:
        """Return the shares, boards and weights that events feed, or the refusal code if there are none."""
        targets = boards_for(self._boards, self._producer, board, kind, category)
        if isinstance(targets, str):
            if targets in _UNKNOWN:
                self._unknown.setdefault((board, kind, category), "")
            return targets
        shares, found = self._shares, []
        for target, weight in targets:
            share = shares.get(target.id)
            if share is None:
                share = shares[target.id] = _Share(self, target.id, self._producer.id)
            found.append((share, target, weight))
        return found

    def _explain(self, code: str, kind: Kind) -> str:
        if code not in _UNKNOWN:
            return REFUSALS[code]
        if not self._unknown.get(kind):
            self._unknown[kind] = f"{REFUSALS[code]}; {self._advice(*kind)}"
        return self._unknown[kind]

    def _advice(self, board: str | UnsetType, event_type: str | UnsetType, _: str | UnsetType) -> str:
        """Suggest the nearest board or type for events that no board takes, or list the types or categories.

        The answer names only boards that the producer may read, and their types and categories. Only the first kinds of
        a body get a suggestion, because finding a suggestion takes long.
        """
        visible = [one for one in self._boards.by_id.values() if self._may_read(one.id)]
        if len(self._unknown) > _MOST_SUGGESTIONS or len(visible) > _MOST_COMPARED:
            return _LISTING
        if board is not UNSET:
            near = nearest(board, [one.id for one in visible])
            return _LISTING if near in {None, board} else f"did you mean `{near}`?"
        wanted, allowed = DEFAULT_TYPE if event_type is UNSET else event_type, self._producer.boards
        taken = [one for one in visible if allowed is None or one.id in allowed]
        types = {one for each in taken for one in each.source}
        near = nearest(wanted, types)
        if event_type is not UNSET and near is not None and near != wanted:
            return f"did you mean `{near}`?"
        what, names = "types", types
        if wanted in types:
            what, names = "categories", {one for each in taken if wanted in each.source for one in each.categories}
        listed = ", ".join(sorted(names))
        usual = f"without `type` it is a `{wanted}`; " if event_type is UNSET else ""
        return usual + (f"there are the {what}: {listed}" if 0 < len(listed) <= _LONGEST_LIST else _LISTING)

    def _answer(self) -> Answer:
        offsets = {share.board: share.outcome.offset for share in self._visible() if share.outcome.offset is not None}
        if any(share.outcome.refused for share in self._shares.values()):
            accepted, duplicates = self._refusals()
        else:  # the boards have counted all events that routing has not refused
            body = self._body
            accepted, duplicates = len(body.indexes) + len(body.rejections) - len(self._rejected), ()
        if self.wants.records:
            # Add the events that boards have counted, now or before, for the boards that the producer may read.
            self.counted += [
                Counted(index, share.board, share.entries[position][0], share.outcome.placements.get(position))
                for share in self._visible()
                for position, index in enumerate(share.indexes)
                if share.outcome.refused.get(position, "duplicate") == "duplicate"
            ]
        self._rejected.sort(key=lambda rejection: rejection.index)
        for code, count in Counter(rejection.code for rejection in self._rejected).items():
            EVENTS_REJECTED.labels(code).inc(count)
        if self._rejected:
            self._sampled.note(self._producer.id, self._body, self._rejected)
        # If no event is new, the whole body was sent again, and a list of duplicates would only repeat it.
        named = duplicates if accepted and duplicates else UNSET
        return Answer(accepted, len(duplicates), tuple(self._rejected), offsets, named)

    def _visible(self) -> list[_Share]:
        return [share for share in self._shares.values() if self._may_read(share.board)]

    def _may_read(self, board: str) -> bool:
        return board not in self._boards.private or board in self._producer.opens

    def _refusals(self) -> tuple[int, tuple[int, ...]]:
        """Collect the refusals. Return the number of accepted events, and the indexes of the duplicates.

        The answer hides the refusal of a board that belongs to another producer, or that the producer may not read,
        unless the event names the board. If no other board took the event, the answer is the same as if that board did
        not exist. This also holds for private unions of other producers.
        """
        body = self._body
        accepted: set[int] = set()
        duplicates: set[int] = set()
        hidden: set[int] = set()
        for share in self._shares.values():
            may_read = self._may_read(share.board)
            if not may_read and not self._producer.feeds(share.board):
                continue
            hidden_here = self._hidden_on(share.board)
            for position, index in enumerate(share.indexes):
                code = share.outcome.refused.get(position)
                if code is None:
                    accepted.add(index)
                elif code == "duplicate":
                    duplicates.add(index)
                elif index in hidden_here:
                    hidden.add(index)
                else:
                    board = share.board if len(self._boards.by_id) > 1 and may_read else UNSET
                    detail = share.details.get(index) or self._detail_of(code, share.board)
                    self._rejected.append(Rejection(index, code, detail, board))
        for index in hidden - accepted - duplicates - {rejection.index for rejection in self._rejected}:
            event = body.events[body.indexes.index(index)]
            self._rejected.append(Rejection(index, "type_unknown", self._explain("type_unknown", _kind(event))))
        if counted := accepted | duplicates:
            self._rejected = [
                msgspec.structs.replace(rejection, counted=True) if rejection.index in counted else rejection
                for rejection in self._rejected
            ]
        duplicates -= accepted
        EVENTS_DUPLICATE.inc(len(duplicates))
        return len(accepted), tuple(sorted(duplicates))

    def _detail_of(self, code: str, board: str) -> str:
        sums = self._boards.by_id[board].sums if code == "score_out_of_range" else None
        if sums is None:
            return REFUSALS[code]
        return f"a field would leave its bounds: {', '.join(map(str, sums.fields))}"[:MAX_DETAIL]


def _kind(event: IncomingEvent) -> Kind:
    return event.board, event.type, event.category


def limit_of(board: Board, producer: Principal) -> int:
    """Return the largest absolute amount that a producer may send to a board that adds amounts up."""
    most = board.largest_amount
    return most if producer.max_amount is None else min(most, producer.max_amount)


def boards_for(
    boards: Boards,
    producer: Principal,
    board: str | UnsetType,
    kind: str | UnsetType,
    category: str | UnsetType,
) -> Sequence[tuple[Board, int]] | str:
    """Return the boards that an event feeds, with weights, or the refusal code if there are none.

    An event that names a board feeds only that board. Any other event feeds all boards that take its type and category.
    An event that feeds a part of a union feeds the union too. A private board does not exist for a producer whose API
    key does not include the board.
    """
    if board is not UNSET and (board not in boards.by_id or (board in boards.private and not producer.feeds(board))):
        return "board_unknown"  # this answer is not remembered: a producer can invent any number of ids, of any length
    return _boards_for(boards, producer.boards, bool(producer.id), board, kind, category)


@lru_cache(maxsize=1024)
def _boards_for(
    boards: Boards,
    allowed: BoardScope | None,
    has_key: bool,  # noqa: FBT001 - a part of the key in the cache
    board: str | UnsetType,
    kind: str | UnsetType,
    category: str | UnsetType,
) -> Sequence[tuple[Board, int]] | str:
    taken: Sequence[Board]
    if board is not UNSET:
        named = boards.by_id[board]
        if named.union:
            return "board_is_union"
        taken = (named,)
    else:
        taken = boards.fed_by(DEFAULT_TYPE if kind is UNSET else kind, None if category is UNSET else category)
        if boards.private:
            own = NO_BOARDS if not has_key else ALL_BOARDS if allowed is None else allowed
            taken = [target for target in taken if target.id not in boards.private or target.id in own]
        if not taken:
            return "type_unknown"
    if allowed is not None:
        taken = [target for target in taken if target.id in allowed]
    return boards.with_unions(taken) or "board_forbidden"
