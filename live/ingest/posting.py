"""One body on its way: its events go to their boards, and what the boards say is put together into one answer."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from live.domain.board import Board, Boards
from live.domain.decoding import Body
from live.domain.event import MAX_DETAIL, Entry, Event, Extra, Identities, Likes, Rejection, entries_of, entry_of
from live.domain.producer import Producer
from live.errors import REFUSALS, EpochLostError, ProblemError, StoreUnavailableError
from live.ingest.committer import Committed, Committer
from live.metrics import EVENTS_DUPLICATE, EVENTS_REJECTED

DEFAULT_TYPE: Final = "like"
_PLAIN: Final = (UNSET, UNSET, UNSET)
_BOARD_FAULTS: Final = (ProblemError, StoreUnavailableError, EpochLostError)


class Answer(msgspec.Struct, frozen=True):
    """The result of a request with events.

    It says how many events counted, which ones were refused, and the new offset of each board that changed.
    """

    accepted: int
    duplicate: int
    rejected: Sequence[Rejection]
    offsets: dict[str, int]


OnResult = Callable[[Answer | Exception], None]


class _Share:
    """What one board gets of a body: entries, and the index of each in the body; then what the board said.

    `details` say more of a refusal than its code does, by the index of the event.
    """

    __slots__ = ("_posting", "board", "details", "entries", "fault", "indexes", "offset", "refused")

    def __init__(self, posting: "Posting", board: str) -> None:
        self._posting = posting
        self.board = board
        self.details: dict[int, str] = {}
        self.indexes: Sequence[int] = ()
        self.entries: Sequence[Entry] = ()
        self.offset: int | None = None
        self.refused: Mapping[int, str] = {}
        self.fault: Exception | None = None

    def resolve(self, committed: Committed) -> None:
        self.offset = committed.offset
        self.refused = committed.refused
        self._posting.received()

    def reject(self, error: Exception) -> None:
        self.fault = error
        self.refused = dict.fromkeys(range(len(self.entries)), "board_unavailable")
        self._posting.received()


class Posting:
    """The events of one body, from the moment that they are decoded; `on_result` is called once with the outcome.

    With `once`, the key that makes a whole body idempotent, each event without an id gets an identity from it: should
    the body be sent again, it is known to be counted, and counts as accepted in the second answer as in the first.
    """

    __slots__ = (
        "_boards",
        "_body",
        "_identities",
        "_implied",
        "_left",
        "_on_result",
        "_once",
        "_producer",
        "_rejected",
        "_shares",
    )

    def __init__(
        self,
        boards: Boards,
        producer: Producer,
        identities: Identities,
        body: Body,
        on_result: OnResult,
        once: str | None = None,
    ) -> None:
        self._boards = boards
        self._producer = producer
        self._body = body
        self._on_result = on_result
        self._once = once
        self._identities = identities
        self._implied: set[int] = set()  # the events whose identity comes from `once`
        self._rejected = body.rejections
        self._shares: dict[str, _Share] = {}
        self._left = 0

    def send(self, committers: dict[str, Committer]) -> None:
        """Give each board its share."""
        self._route()
        shares = self._shares.values()
        self._left = len(shares)
        if not shares:
            self._on_result(self._answer())
        for share in shares:
            try:
                committers[share.board].submit(share)
            except ProblemError as error:
                share.reject(error)

    def receive(self, outcome: Committed | Exception) -> None:
        """What became of the only event, for the only board, that was counted on another way than `send`."""
        self._route()
        self._left = 1
        (share,) = self._shares.values()
        if isinstance(outcome, Committed):
            share.resolve(outcome)
        else:
            share.reject(outcome)

    def received(self) -> None:
        """A board has said what became of its share."""
        self._left -= 1
        if self._left == 0:
            faults = [share.fault for share in self._shares.values() if share.fault is not None]
            outcome = self._fault(faults) if faults else self._answer()
            self._shares.clear()  # they know us: as a cycle, all of it would be left to the collector
            self._on_result(outcome)

    def _route(self) -> None:
        """Give each event to its boards: the one it names, or every one that takes its type and category."""
        body = self._body
        kinds = {_PLAIN} if body.likes else {(event.board, event.type, event.category) for event in body.events}
        if len(kinds) == 1:
            self._route_alike(*kinds.pop())
            return
        parts: dict[_Share, tuple[list[int], list[Entry]]] = {}
        for index, event, entry in zip(body.indexes, body.events, self._entries(), strict=True):
            takers = self._takers(event.board, event.type, event.category)
            if isinstance(takers, str):
                self._rejected.append(Rejection(index, takers, REFUSALS[takers]))
                continue
            for share, board, weight in takers:
                indexes, entries = parts.setdefault(share, ([], []))
                indexes.append(index)
                plain = self._is_plain_for(board, weight, abs(entry[1]))
                entries.append(entry if plain else self._fit(share, board, weight, index, event, entry))
        for share, (indexes, entries) in parts.items():
            share.indexes, share.entries = indexes, entries

    def _route_alike(self, board: str | UnsetType, kind: str | UnsetType, category: str | UnsetType) -> None:
        """Give all events to the same boards."""
        takers = self._takers(board, kind, category)
        body = self._body
        if isinstance(takers, str):
            self._rejected.extend(Rejection(index, takers, REFUSALS[takers]) for index in body.indexes)
            return
        entries: Sequence[Entry] = Likes(body.likes) if body.likes and self._once is None else self._entries()
        widest = 1 if body.likes else max((abs(entry[1]) for entry in entries), default=0)
        for share, taker, weight in takers:
            share.indexes, share.entries = body.indexes, entries
            if not self._is_plain_for(taker, weight, widest):
                triples = zip(body.indexes, body.events, entries, strict=True)
                share.entries = [self._fit(share, taker, weight, *triple) for triple in triples]

    def _is_plain_for(self, board: Board, weight: int, widest: int) -> bool:
        """Whether a board takes entries as they are, whose amounts are no further than `widest` from zero."""
        if weight != 1 or board.score is not None:
            return False
        return board.operator != "incr" or widest <= limit_of(board, self._producer)

    def _fit(self, share: _Share, board: Board, weight: int, index: int, event: Event, entry: Entry) -> Entry:
        """What a board needs of an event; one that it refuses goes there too, for it may have been counted before."""
        key, amount, time, identity, extra = entry
        code = None
        if board.score is not None:
            try:
                amount = board.score.pack({} if event.fields is UNSET else event.fields)
            except ValueError as error:
                code, share.details[index] = "fields_invalid", str(error)[:MAX_DETAIL]
        elif board.operator == "incr":
            limit = limit_of(board, self._producer)
            amount *= weight
            if abs(amount) > limit:
                amount, code = 0, "amount_too_large"
                share.details[index] = f"board {board.id} takes amounts of this API key from {-limit} to {limit}"
        if code is not None:
            extra = msgspec.structs.replace(extra or Extra(), refused=code)
        return (key, amount, time, identity, extra)

    @property
    def _several(self) -> bool:
        """Whether it has to be said which board it was that refused."""
        return len(self._boards.by_id) > 1

    def _entries(self) -> list[Entry]:
        """What boards need of the events."""
        body = self._body
        if self._once is None:
            return entries_of(body.events, self._identities.of)
        return [
            entry_of(event, self._identity(event, index))
            for index, event in zip(body.indexes, body.events, strict=True)
        ]

    def _takers(
        self, board: str | UnsetType, kind: str | UnsetType, category: str | UnsetType
    ) -> Sequence[tuple["_Share", Board, int]] | str:
        """The shares of the boards that events feed with their weights, or the code of why there are none."""
        takers = takers_of(self._boards, self._producer.boards, board, kind, category)
        if isinstance(takers, str):
            return takers
        shares = self._shares
        return [(shares.get(taker.id) or self._share_of(taker.id), taker, weight) for taker, weight in takers]

    def _share_of(self, board: str) -> _Share:
        share = self._shares[board] = _Share(self, board)
        return share

    def _identity(self, event: Event, index: int) -> bytes:
        if event.id is UNSET:
            self._implied.add(index)
            return self._identities.of_part(self._once or "", index)
        return self._identities.of(event)

    def _fault(self, faults: Sequence[Exception]) -> Answer | Exception:
        """What to answer when boards could not: refused for these alone, if another has counted, or else as a whole."""
        if len(faults) < len(self._shares) and all(isinstance(fault, _BOARD_FAULTS) for fault in faults):
            return self._answer()
        return max(faults, key=lambda fault: getattr(fault, "unknown", False))  # one that may have counted goes first

    def _answer(self) -> Answer:
        """Put together what the boards said."""
        shares = self._shares.values()
        offsets = {share.board: share.offset for share in shares if share.offset is not None}
        if any(share.refused for share in shares):
            accepted, duplicate = self._refusals()
        else:
            indexes = (share.indexes for share in shares)
            accepted = len(set(chain.from_iterable(indexes))) if len(shares) > 1 else sum(map(len, indexes))
            duplicate = 0
        self._rejected.sort(key=_by_index)
        for code, count in Counter(rejection.code for rejection in self._rejected).items():
            EVENTS_REJECTED.labels(code).inc(count)
        return Answer(accepted, duplicate, self._rejected, offsets)

    def _quiet_indexes(self, share: _Share) -> AbstractSet[int]:
        """The events of which a board tells nothing: it belongs to another producer, and they do not name it."""
        if self._boards.by_id[share.board].owner in {"", self._producer.id}:
            return frozenset()
        body = self._body
        pairs = zip(body.indexes, body.events, strict=True)
        return {index for index, event in pairs if event.board != share.board}

    def _refusals(self) -> tuple[int, int]:
        """Name what was refused; the numbers of events that some board counted, and that are but known by some.

        What a board of another producer refuses is not told, unless the event names that board. An event of which
        nothing else is to be told is answered as if there were no such board.
        """
        accepted: set[int] = set()
        known: set[int] = set()
        kept_quiet: set[int] = set()
        for share in self._shares.values():
            quiet = self._quiet_indexes(share)
            for position, index in enumerate(share.indexes):
                code = share.refused.get(position)
                if code is None or (code == "duplicate" and index in self._implied):
                    accepted.add(index)
                elif code == "duplicate":
                    known.add(index)
                elif index in quiet:
                    kept_quiet.add(index)
                else:
                    board = share.board if self._several else None
                    self._rejected.append(Rejection(index, code, share.details.get(index, REFUSALS[code]), board))
        answered = accepted | known | {rejection.index for rejection in self._rejected}
        for index in kept_quiet - answered:
            self._rejected.append(Rejection(index, "type_unknown", REFUSALS["type_unknown"]))
        known -= accepted
        EVENTS_DUPLICATE.inc(len(known))
        return len(accepted), len(known)


def limit_of(board: Board, producer: Producer) -> int:
    """How far from zero an amount may be that a producer sends to a board which adds amounts up."""
    return board.max_amount if producer.max_amount is None else min(board.max_amount, producer.max_amount)


@lru_cache(maxsize=1024)
def takers_of(
    boards: Boards,
    allowed: frozenset[str] | None,
    board: str | UnsetType,
    kind: str | UnsetType,
    category: str | UnsetType,
) -> Sequence[tuple[Board, int]] | str:
    """The boards that an event feeds, named by it or by its type and category; or the code of why there are none.

    Its producer may post to those that are `allowed` (None: to all); unions follow from the boards that they add up.
    """
    taken: Sequence[Board]
    if board is not UNSET:
        named = boards.by_id.get(board)
        if named is None:
            return "board_unknown"
        if named.union:
            return "board_is_union"
        taken = (named,)
    else:
        taken = boards.fed_by(DEFAULT_TYPE if kind is UNSET else kind, None if category is UNSET else category)
        if not taken:
            return "type_unknown"
    if allowed is not None:
        taken = [taker for taker in taken if taker.id in allowed]
    return boards.with_unions(taken) or "board_forbidden"


def _by_index(rejection: Rejection) -> int:
    return rejection.index
