"""The page of a ranking that a request selects: by `cursor`, by `score`, or by `start`."""

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from live.domain.event import MAX_KEY_BYTES, MAX_SCORE
from live.domain.ranking import Page
from live.errors import ProblemError
from live.network.parameters import whole_number
from live.store.board.ledger import Ledger
from live.store.board.read.reader import Selection
from live.store.board.read.single_flight import SharedPages
from live.web.periods import period_of, period_of_cursor

DEFAULT_LIMIT: Final = 100

_MAX_START: Final = 10**9 - 1

Score = Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)]


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A position in a ranking; the next page is after or before it. It stays valid when the record there moves.

    `period` is the start of the period that is read, in seconds since 1970.
    """

    direction: Literal["after", "before"]
    score: Score
    name: Annotated[bytes, Meta(max_length=MAX_KEY_BYTES + 8)]
    period: int | None


def encode_cursor(cursor: Cursor) -> str:
    """A cursor as opaque text."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(text: str) -> Cursor:
    """The cursor of such a text.

    Raises:
        ProblemError: `cursor_invalid`.
    """
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(decoded, type=Cursor)
    except (binascii.Error, ValueError):
        raise ProblemError(
            "cursor_invalid", "use `next_cursor` or `prev_cursor` of an earlier page unchanged"
        ) from None


def cursors_around(page: Page) -> tuple[str | None, str | None]:
    """The cursors of the next and of the previous page; None at the end and at the start."""
    more = page.start + len(page.records) < page.rank_count
    following = encode_cursor(Cursor("after", *page.last, page.slot)) if more and page.last else None
    previous = encode_cursor(Cursor("before", *page.first, page.slot)) if page.start and page.first else None
    return following, previous


def plain_selection(query: Mapping[str, str], max_limit: int) -> Selection | None:
    """The page that the parameters of a request select, on the current period; None if they name a period.

    Raises:
        ProblemError: a parameter is out of range.
    """
    cursor = _cursor_in(query)
    if query.get("period", "current") != "current" if cursor is None else cursor.period is not None:
        return None
    return _selection(query, cursor, max_limit)


async def selection_of(query: Mapping[str, str], ledger: Ledger, reads: SharedPages, max_limit: int) -> Selection:
    """The page of a board that the parameters of a request select.

    Raises:
        ProblemError: a parameter is out of range, or the period is not kept.
        EpochLostError: the store lost the board.
    """
    cursor = _cursor_in(query)
    selection = _selection(query, cursor, max_limit)
    if cursor is None:
        return selection._replace(period=await period_of(query, ledger, reads))
    return selection._replace(period=await period_of_cursor(cursor.period, ledger, reads))


def _cursor_in(query: Mapping[str, str]) -> Cursor | None:
    text = query.get("cursor")
    return None if text is None else decode_cursor(text)


def _selection(query: Mapping[str, str], cursor: Cursor | None, max_limit: int) -> Selection:
    limit = whole_number(query, "limit", min(DEFAULT_LIMIT, max_limit), 1, max_limit)
    if cursor is not None:
        return Selection(cursor.direction, cursor.score, cursor.name, limit)
    score = query.get("score")
    if score is not None:
        return Selection("score", _score(score), "", limit)
    return Selection("rank", whole_number(query, "start", 0, 0, _MAX_START), "", limit)


def _score(text: str) -> int:
    """The value of the parameter `score`.

    Raises:
        ProblemError: `parameter_invalid`.
    """
    digits = text.removeprefix("-")
    if not (
        digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MAX_SCORE)) and int(digits) <= MAX_SCORE
    ):
        raise ProblemError("parameter_invalid", "`score` must be a whole number within ±2^53")
    return int(text)
