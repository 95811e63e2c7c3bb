"""Messages to viewers, each encoded once for all: as JSON, as a WebSocket frame, and as a server-sent event.

A WebSocket frame can be compressed (RFC 1951). The dictionary of a text is the few texts before it. References count
backwards from the end of the decompressed data. So two receivers can share a text if both have its dictionary, whatever
they received before it. No receiver needs its own compressor.
"""

import struct
import time
import zlib
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from itertools import count
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET

from live.domain.board import Board
from live.domain.event import rfc3339
from live.domain.ranking import Page, diff
from live.domain.views import Alive, Around, Status, Sync, Update, Viewers, facts_of

_LEAST_RECORD: Final = len(b'{"key":"a","score":0,"rank":1},')  # bytes of the shortest possible record
_LEAST_DEFLATED: Final = 128  # the fewest bytes of a message that is worth compressing
_TEXT: Final = 0x81  # the first byte of a text message in one frame
_RSV1: Final = 0x40  # the bit that marks a compressed message
_TWO_BYTES: Final = 126  # the second byte of a frame whose length follows in two bytes
_EIGHT_BYTES: Final = 1 << 16
FLUSHED: Final = b"\x00\x00\xff\xff"  # the end of a flush: an empty block, which ends on a byte boundary
_LEVEL: Final = 6
_WINDOW: Final = -15  # a window of 32 KiB, and no header
# A member that moves in one message is often in one of the last few messages. A longer dictionary would save little,
# and it would take longer until new receivers can share texts with the others.
_DEPTH: Final = 4
_MOST_HISTORIES: Final = 8  # histories with which a text is compressed; for others, it is compressed without a history


MessageType = Literal["sync", "update", "status", "viewers", "around", "alive"]
_encode = msgspec.json.Encoder().encode


def deflate(text: bytes, dictionary: bytes) -> bytes:
    """Compress a text into blocks that end on a byte boundary, for receivers whose data ends with the dictionary."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, zdict=dictionary)
    return compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)


class SharedText:
    """A text that `make` compresses once, from the text and a dictionary, for all receivers with the same history."""

    _numbers = count()

    def __init__(self, text: bytes, make: Callable[[bytes, bytes], bytes]) -> None:
        self.text = text
        self._make = make
        self._number = next(self._numbers)
        # The keys are the numbers of the texts in the history. References to the texts themselves would keep all of
        # them in memory.
        self._made: dict[tuple[int, ...], bytes] = {}

    def after(self, history: "TextHistory") -> bytes:
        """Return the text compressed for receivers with a history."""
        key = tuple([text._number for text in history])  # noqa: SLF001 - of the same class
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_HISTORIES and history:
                return self.after(())
            found = self._made[key] = self._make(self.text, b"".join([text.text for text in history]))
        return found


TextHistory: TypeAlias = tuple[SharedText, ...]
"""The last compressed texts that a receiver has, the newest last. They are the dictionary of the next text."""


def following(history: TextHistory, text: SharedText) -> TextHistory:
    """Return the history after a text was received."""
    return (*history, text)[-_DEPTH:]


class Frame(msgspec.Struct, dict=True, eq=False):
    """A message ready to send, shared by all its receivers. `id` is the position after the message, or empty."""

    type: MessageType
    payload: bytes
    id: str = ""

    @cached_property
    def wire(self) -> bytes:
        """The message as a WebSocket frame."""
        return _framed(_TEXT, self.payload)

    @cached_property
    def message(self) -> SharedText:
        """The message as a WebSocket frame, compressed for each history (RFC 7692), or plain if this is not larger."""
        return SharedText(self.payload, partial(_compressed, self.wire))

    @cached_property
    def event(self) -> bytes:
        """The message as a server-sent event. The payload is one line, because JSON strings escape line breaks."""
        position = f"id: {self.id}\n" if self.id else ""
        return f"{position}event: {self.type}\ndata: ".encode() + self.payload + b"\n\n"


def _compressed(wire: bytes, payload: bytes, dictionary: bytes) -> bytes:
    if len(payload) < _LEAST_DEFLATED:
        return wire
    data = deflate(payload, dictionary).removesuffix(FLUSHED)  # RFC 7692, section 7.2.1
    if len(data) >= len(payload):
        return wire
    return _framed(_TEXT | _RSV1, data)


def _framed(head: int, payload: bytes) -> bytes:
    """Make a WebSocket frame. Frames of a server are not masked, so all viewers receive the same bytes.

    A frame is made for each change of each board. The library `websockets` would take ten times as long.
    """
    size = len(payload)
    if size < _TWO_BYTES:
        return bytes((head, size)) + payload
    if size < _EIGHT_BYTES:
        return struct.pack("!BBH", head, _TWO_BYTES, size) + payload
    return struct.pack("!BBQ", head, _TWO_BYTES + 1, size) + payload


@lru_cache(maxsize=1)
def alive_frame(second: int) -> Frame:
    """Make the sign of life for a second since 1970. All viewers share it."""
    return frame_of(Alive(rfc3339(second * 1000)))


def sync_frame(board: Board, page: Page, size: int, *, recovered: bool = False) -> Frame:
    """Make a sync with the top `size` of a page that starts at rank 1."""
    sync = Sync(
        board=board.id,
        epoch=page.epoch,
        offset=page.offset,
        rank_count=page.rank_count,
        total_score=page.total_score,
        recovered=recovered,
        records=page.records[:size],
        time=_now(),
        definition=board.definition_tag,
        period=page.period or UNSET,
        ranks=UNSET if board.ranks == "ordinal" else board.ranks,
        **facts_of(board, page.slot),
    )
    return Frame("sync", _encode(sync), position_id(page.epoch, page.offset))


def update_frame(old: Page, new: Page, size: int, *, returning: Board | None = None) -> Frame:
    """Make an update from the top `size` of an old page to the top `size` of a new page of the same epoch.

    Both pages begin at rank 1. `returning` is the board if the update is for viewers that return: they may have missed
    a change of its definition.
    """
    facts: dict[str, Any] = {}
    if returning is not None:
        facts = {"recovered": True, "time": _now(), "definition": returning.definition_tag}
        facts |= facts_of(returning, new.slot)
    changed, removed = diff(old.records[:size], new.records[:size])
    update = Update(
        epoch=new.epoch,
        since=old.offset,
        offset=new.offset,
        rank_count=new.rank_count,
        total_score=new.total_score,
        changed=changed,
        removed=removed,
        period=new.period or UNSET,
        **facts,
    )
    return Frame("update", _encode(update), position_id(new.epoch, new.offset))


def is_surely_smaller(update: Frame, page: Page, size: int) -> bool:
    """Tell whether an update is surely smaller than the sync, without encoding the sync."""
    rest = len(update.payload) - _LEAST_RECORD * min(size, len(page.records))
    return rest <= sum([len(record.member) - 1 for record in page.records[:size]])


def status_frame(reason: str | None, retry_after: float | None = None) -> Frame:
    """Make a status message. `reason` says why records are stale. None means that they are up to date."""
    return frame_of(Status(reason is not None, reason, retry_after))


def frame_of(message: Status | Viewers | Around | Alive) -> Frame:
    """Make the frame of a message that has no position."""
    return Frame(cast("MessageType", message.__struct_config__.tag), _encode(message))


def _now() -> str:
    return rfc3339(round(time.time() * 1000))


def position_id(epoch: str, offset: int) -> str:
    """Format a position: the `id` of a server-sent event."""
    return f"{epoch}:{offset}"
