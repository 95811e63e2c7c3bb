"""The pages of boards: one lists them, and says why each is quiet; one shows a board as TOML, and changes it."""

import re
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from starlette.responses import Response

from live.domain.board import Board
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.board.usage import measure
from live.web.activity import Sample
from live.web.admin.admin_page import AdminPage, ApiCall, Desk, board_path
from live.web.api.boards import visible_choices
from live.web.parts import search

_ON_PAGE: Final = 100
_LONGEST_SEARCH: Final = 64
_WIDTH: Final = 120  # width of a sparkline, in units of its SVG `viewBox`
_HEIGHT: Final = 24
_MINUTE: Final = 6  # samples in a minute
_MOST_SLOTS: Final = 100  # newest slots whose memory is measured
_LONGEST_LAG: Final = 10.0  # seconds
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # names that need no quotes in TOML


class BoardRow(msgspec.Struct, frozen=True, kw_only=True):
    """One board in the table. `members` and `viewers` are None while they are not known.

    `counted` is the number of events since the server started, `line` has the points of a line of the last ten minutes,
    and `state` and `why` are names in the words of the pages.
    """

    board: Board
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


async def _show_boards(desk: Desk) -> Response:
    query = desk.visit.query
    text = query.get("q", "")[:_LONGEST_SEARCH].strip()
    boards = sorted(desk.ledgers(), key=lambda ledger: ledger.state.board.id)
    found = search(boards, text)
    samples = await desk.live.activity.samples()

    async def row(ledger: Ledger) -> BoardRow:
        return await _row_of(desk, ledger, samples)

    shown, number, page_count = desk.page_of(found, _ON_PAGE)
    rows = await desk.live.over_boards(row, shown, desk.visit.reader)
    return await desk.show(
        "boards",
        listed=rows,
        health=_health_of(desk, boards, samples),
        count=len(found),
        number=number,
        page_count=page_count,
        search=text,
        longest=_LONGEST_SEARCH,
    )


async def _row_of(desk: Desk, ledger: Ledger, samples: Sequence[Sample]) -> BoardRow:
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
        members=members,
        viewers=viewers,
        counted=counted[-1],
        rate=_rate(samples, counted),
        line=_line(counted),
        state=state,
        why=_why(board, state, counted[-1]),
    )


def _why(board: Board, state: str, counted: int) -> str:
    """Return the end of a key `admin_why_…` of the translations.

    The text is empty if nothing stops the board, and it has counted an event since the server started.
    """
    votes, now = board.votes, time.time() * 1000
    if state in {"lost", "stale", "frozen"}:
        return state
    if votes is not None and votes.closes_at is not None and votes.closes_at <= now:
        return "closed"
    if votes is not None and votes.opens_at is not None and now < votes.opens_at:
        return "not_open"
    if counted:
        return ""
    return "no_part" if board.union else "no_event"


def _rate(samples: Sequence[Sample], values: Sequence[int]) -> float:
    """Return the events a second, over the last minute."""
    first = max(0, len(samples) - 1 - _MINUTE)
    span = samples[-1].at - samples[first].at
    return max(0, values[-1] - values[first]) / span if span else 0.0


def _line(values: Sequence[int]) -> str:
    steps = [max(0, after - before) for before, after in pairwise(values)]
    if not any(steps):
        return ""
    across, most = _WIDTH / max(1, len(steps) - 1), max(steps)
    points = (f"{place * across:.1f},{_HEIGHT - step / most * _HEIGHT:.1f}" for place, step in enumerate(steps))
    return " ".join(points)


def _health_of(desk: Desk, boards: Sequence[Ledger], samples: Sequence[Sample]) -> dict[str, float | None]:
    """Return events and refused events a second, viewers, and how far the journal is behind.

    An API key that is limited to some boards does not see refused events, because they may be of other boards.
    """
    ids = [ledger.state.board.id for ledger in boards]
    accepted = [sum(sample.accepted.get(board, 0) for board in ids) for sample in samples]
    rejected = [sum(sample.rejected.values()) for sample in samples]
    lag = samples[-1].lag if desk.live.settings.journal != "off" else None
    return {
        "accepted": _rate(samples, accepted),
        "rejected": None if desk.producer.is_limited else _rate(samples, rejected),
        "viewers": sum(samples[-1].viewers.get(board, 0) for board in ids),
        "lag": lag,
        "is_late": lag is not None and lag > _LONGEST_LAG,
    }


async def _show_board(desk: Desk) -> Response:
    ledger = await desk.ledger(desk.request.path_params["board"])
    board = ledger.state.board
    definition = await desk.live.board_admin.defined(board.id)
    choices = visible_choices(desk.live, board, desk.visit.reader)
    if definition is not None and choices.get("union") in (None, definition.choices.get("union")):
        choices = definition.choices  # in the order in which they were written
    client, keys = desk.live.client, ledger.state.keys
    names = [keys.meta, keys.slots, *keys.fixed]
    names += [keys.seen(ledger.state.buckets.newest - back * ledger.state.buckets.span) for back in range(2)]
    for start in await client.call(keys.slots, "ZRANGE", keys.slots, -_MOST_SLOTS, -1):
        own = int(start)
        names += keys.of_slot(own) if ledger.state.board.window.tables else (keys.slot(own),)
    measured = await measure(client, ledger.state.board.id, list(dict.fromkeys(names)))
    return await desk.show(
        "board",
        row=await _row_of(desk, ledger, await desk.live.activity.samples()),
        memory=measured.bytes,
        toml=board_toml(board.id, choices),
        put=ApiCall("PUT", board_path(board.id), choices),
        freeze=_freezing(board),
        delete=ApiCall("DELETE", board_path(board.id)),
    )


async def _freeze(desk: Desk) -> Response:
    board = (await desk.ledger(desk.request.path_params["board"])).state.board
    await desk.send(_freezing(board))
    return desk.done("thawed" if board.frozen else "frozen")


async def _delete(desk: Desk) -> Response:
    board = desk.request.path_params["board"]
    if desk.form.get("id", "").strip() != board:
        raise ProblemError("board_invalid", f"type the id of the board, {board}, to delete it with all its data")
    ledger = await desk.ledger(board)
    await desk.send(ApiCall("DELETE", board_path(ledger.state.board.id)))
    return desk.done("deleted", "")


def _freezing(board: Board) -> ApiCall:
    return ApiCall("PATCH", board_path(board.id), {"frozen": not board.frozen})


def board_toml(board: str, choices: Mapping[str, Any]) -> str:
    """Write choices as a table of a boards file."""
    given = {name: value for name, value in {"id": board, **choices}.items() if value is not None}
    return "\n".join(("[[board]]", *(f"{_toml_name(name)} = {_toml_value(value)}" for name, value in given.items())))


def _toml_value(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        inner = (f"{_toml_name(name)} = {_toml_value(one)}" for name, one in value.items() if one is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    # Texts, numbers, true and false look the same in TOML and in JSON, except for this character in a text.
    return msgspec.json.encode(value).decode().replace("\x7f", r"\u007f")


def _toml_name(name: str) -> str:
    return name if _BARE.fullmatch(name) else _toml_value(name)


PAGES: Final = (
    AdminPage(path="", name="boards", show=_show_boards),
    AdminPage(path="boards/{board}", show=_show_board, acts={"freeze": _freeze, "delete": _delete}),
)
