"""POST /v1/events: from a body to an answer that names each event that did not count."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.board import Board, Boards
from live.errors import REFUSALS, EpochLostError, ProblemError, StoreUnavailableError
from live.event import Entry, Event, Rejection, entry_of
from live.ingest import Committed
from live.metrics import EVENTS_REJECTED
from live.web.bodies import read_events
from live.web.state import Live, live_of

DEFAULT_TYPE = "like"
_BOARD_FAULTS = (ProblemError, StoreUnavailableError, EpochLostError)


class Answer(msgspec.Struct, frozen=True):
    """What became of a body: counts, the refusals by index, and where each board stands that counted some of it."""

    accepted: int
    duplicate: int
    rejected: Sequence[Rejection]
    offsets: dict[str, int]


class _Share(msgspec.Struct, frozen=True):
    """What one board gets of a body: the entries, and the index of each in the body."""

    indexes: list[int]
    entries: list[Entry]


async def post_events(request: Request) -> Response:
    """Count the events of a body; answered when they are durable."""
    live = live_of(request)
    body = await read_events(request, live.settings)
    shares, rejected = _route(live.boards, body.events)
    rejected.extend(body.rejections)
    committed = await _commit(live, shares)
    answer = _answer(live, shares, committed, rejected)
    return Response(msgspec.json.encode(answer), headers={"Cache-Control": "no-store"}, media_type="application/json")


def _route(boards: Boards, events: Sequence[tuple[int, Event]]) -> tuple[dict[str, _Share], list[Rejection]]:
    """Give each event to its boards: the one it names, or every one whose source takes its type."""
    shares: dict[str, _Share] = {}
    rejected: list[Rejection] = []
    for index, event in events:
        takers = _takers(boards, event)
        if isinstance(takers, str):
            rejected.append(Rejection(index, takers, REFUSALS[takers]))
            continue
        entry = entry_of(event)
        for board in takers:
            share = shares.get(board.id)
            if share is None:
                share = shares[board.id] = _Share([], [])
            share.indexes.append(index)
            share.entries.append(entry)
    return shares, rejected


async def _commit(live: Live, shares: dict[str, _Share]) -> list[Committed]:
    """Count each board's share; a board that could not refuses its share alone, if another has counted.

    Raises:
        ProblemError, StoreUnavailableError, EpochLostError: no board counted anything.
    """
    commits = (live.committers[board].commit(share.entries) for board, share in shares.items())
    results = await asyncio.gather(*commits, return_exceptions=True)
    committed: list[Committed] = []
    faults: list[BaseException] = []
    for share, result in zip(shares.values(), results, strict=True):
        if isinstance(result, BaseException):
            faults.append(result)
            committed.append(Committed(None, dict.fromkeys(range(len(share.entries)), "board_unavailable")))
        else:
            committed.append(result)
    if faults and (len(faults) == len(results) or not all(isinstance(fault, _BOARD_FAULTS) for fault in faults)):
        raise max(faults, key=lambda fault: getattr(fault, "unknown", False))  # one that may have counted goes first
    return committed


def _takers(boards: Boards, event: Event) -> tuple[Board, ...] | str:
    """The boards that an event feeds, or the code of why there are none."""
    if event.board is not msgspec.UNSET:
        named = boards.by_id.get(event.board)
        return "board_unknown" if named is None else (named,)
    takers = boards.by_type.get(DEFAULT_TYPE if event.type is msgspec.UNSET else event.type)
    return "type_unknown" if takers is None else takers


def _answer(live: Live, shares: dict[str, _Share], committed: Sequence[Committed], rejected: list[Rejection]) -> Answer:
    """Put together what the boards said; an event counts as accepted when at least one board counted it."""
    accepted: set[int] = set()
    offsets: dict[str, int] = {}
    several = len(live.boards.by_id) > 1
    for (board, share), result in zip(shares.items(), committed, strict=True):
        if result.offset is not None:
            offsets[board] = result.offset
        accepted.update(index for i, index in enumerate(share.indexes) if i not in result.refused)
        for i, code in result.refused.items():
            rejected.append(Rejection(share.indexes[i], code, REFUSALS[code], board if several else None))
    rejected.sort(key=lambda rejection: rejection.index)
    for rejection in rejected:
        EVENTS_REJECTED.labels(rejection.code).inc()
    return Answer(len(accepted), 0, rejected, offsets)
