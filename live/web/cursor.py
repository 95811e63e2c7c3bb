"""Cursors: where a walk through a ranking goes on, as an opaque word."""

import base64
import binascii
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from live.domain.event import MAX_KEY_BYTES, MAX_SCORE
from live.errors import ProblemError

Score = Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)]


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A position in a ranking, behind or before which the next page is; it stays good when the record there moves.

    `period` is the start of the period that is walked through.
    """

    direction: Literal["after", "before"]
    score: Score
    name: Annotated[bytes, Meta(max_length=MAX_KEY_BYTES + 8)]
    period: int | None


def encode_cursor(cursor: Cursor) -> str:
    """A cursor as a word."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(word: str) -> Cursor:
    """The cursor of a word.

    Raises:
        ProblemError: `cursor_invalid`.
    """
    try:
        text = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=Cursor)
    except (binascii.Error, ValueError):
        raise ProblemError(
            "cursor_invalid", "use `next_cursor` or `prev_cursor` of an earlier page unchanged"
        ) from None
