"""The page of all boards: the state of the server, and for each board its kind, its state, and why it is quiet."""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
from starlette.responses import Response

from live.domain.board import Board
from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.web.activity import Sample
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form

_ON_PAGE: Final = 100
_LONGEST_SEARCH: Final = 64
_WIDTH: Final = 120  # width of a sparkline, in units of its SVG `viewBox`
_HEIGHT: Final = 24
_MINUTE: Final = 6  # samples in a minute
_LONGEST_LAG: Final = 10.0  # seconds


class BoardRow(msgspec.Struct, frozen=True, kw_only=True):
    """One board in the table. `members` and `viewers` are None while they are not known.

    `counted` is the number of events since the server started, `line` has the points of a line of the last ten minutes,
    and `state` and `why` are names in the words of the pages.
    """

    board: Board
    in_file: bool
    members: int | None
    viewers: int | None
    counted: int
    rate: float
    line: str
    state: str
    why: str

    @property
    def kind(self) -> str:
        """The kind of the board: the end of its key `admin_kind_…` in the translations."""
        if self.board.votes is not None:
            return "votes"
        return "union" if self.board.union else self.board.operator

    @property
    def types(self) -> str:
        """The types of the events that the board takes."""
        return ", ".join(sorted(self.board.source))


class ServerHealth(msgspec.Struct, frozen=True):
    """The line above the table: events and refused events a second, viewers, and how far the journal is behind.

    An API key that is limited to some boards does not see refused events, because they may be of other boards.
    """

    accepted: float
    rejected: float | None
    viewers: int
    lag: float | None

    @property
    def is_late(self) -> bool:
        """Whether the journal is too far behind."""
        return self.lag is not None and self.lag > _LONGEST_LAG


async def show(desk: Desk, error: Exception | None = None, _form: Form = NO_FORM) -> Response:
    """Show a page of the table of boards."""
    query = desk.visit.query
    search = query.get("q", "")[:_LONGEST_SEARCH].strip()
    wanted = search.casefold()
    boards = sorted(desk.ledgers(), key=lambda ledger: ledger.state.board.id)
    found = [
        ledger for ledger in boards if wanted in ledger.state.board.id or wanted in ledger.state.board.title.casefold()
    ]
    samples = await desk.live.activity.samples()

    async def row(ledger: Ledger) -> BoardRow:
        return await row_of(desk, ledger, samples)

    shown, number, page_count = desk.page_of(found, _ON_PAGE)
    rows = await desk.live.over_boards(row, shown, desk.visit.reader)
    return await desk.show(
        "boards",
        error,
        listed=rows,
        health=_health_of(desk, boards, samples),
        count=len(found),
        number=number,
        page_count=page_count,
        search=search,
        longest=_LONGEST_SEARCH,
    )


async def row_of(desk: Desk, ledger: Ledger, samples: Sequence[Sample]) -> BoardRow:
    """Describe a board."""
    board = ledger.state.board
    members = viewers = None
    state = "stale"
    try:
        page = await ledger.reader.read(1)
        members, viewers = page.rank_count, await desk.live.presence.count(board.id)
        state = "frozen" if board.frozen else "live"
    except (StoreUnavailableError, EpochLostError):
        if ledger.state.is_lost:
            state = "lost"
    counted = [sample.accepted.get(board.id, 0) for sample in samples]
    return BoardRow(
        board=board,
        in_file=board.id in desk.live.board_admin.in_file.by_id,
        members=members,
        viewers=viewers,
        counted=counted[-1],
        rate=_rate(samples, counted),
        line=_line(counted),
        state=state,
        why=_why(board, state, counted[-1]),
    )


def _why(board: Board, state: str, counted: int) -> str:
    """Return why nothing happens on a board: the end of a key `admin_why_…` of the translations.

    The text is empty if nothing stops the board, and it has counted an event since the server started.
    """
    votes, now = board.votes, time.time() * 1000
    if state in {"lost", "stale", "frozen"}:
        return state
    if votes is not None and votes.closes is not None and votes.closes <= now:
        return "closed"
    if votes is not None and votes.opens is not None and now < votes.opens:
        return "not_open"
    if counted:
        return ""
    return "no_part" if board.union else "no_event"


def _rate(samples: Sequence[Sample], values: Sequence[int]) -> float:
    """Return the events a second, over the last minute of the samples."""
    first = max(0, len(samples) - 1 - _MINUTE)
    span = samples[-1].at - samples[first].at
    return max(0, values[-1] - values[first]) / span if span else 0.0


def _line(values: Sequence[int]) -> str:
    """Draw the events between the samples as the points of a line."""
    steps = [max(0, after - before) for before, after in pairwise(values)]
    if not any(steps):
        return ""
    across, most = _WIDTH / max(1, len(steps) - 1), max(steps)
    points = (f"{place * across:.1f},{_HEIGHT - step / most * _HEIGHT:.1f}" for place, step in enumerate(steps))
    return " ".join(points)


def _health_of(desk: Desk, boards: Sequence[Ledger], samples: Sequence[Sample]) -> ServerHealth:
    ids = [ledger.state.board.id for ledger in boards]
    accepted = [sum(sample.accepted.get(board, 0) for board in ids) for sample in samples]
    rejected = [sum(sample.rejected.values()) for sample in samples]
    return ServerHealth(
        _rate(samples, accepted),
        None if desk.is_limited else _rate(samples, rejected),
        sum(samples[-1].viewers.get(board, 0) for board in ids),
        samples[-1].lag if desk.live.settings.journal != "off" else None,
    )


PAGE: Final = AdminPage(path="", name="boards", show=show)
