"""Messages to viewers, encoded once for all of them: as JSON, as a WebSocket frame, and as a server-sent event."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType
from websockets import frames as websocket

from live.domain.ranking import Page, Ranks, Record, diff

_LEAST_RECORD: Final = len(b'{"key":"a","score":0,"rank":1},')  # bytes; no record of a sync is shorter


class Sync(msgspec.Struct, frozen=True, tag="sync", tag_field="type"):
    """The whole top of a board; `ranks` says how equal scores are ranked, if not `ordinal`."""

    board: str
    epoch: str
    offset: int
    rank_count: int
    total_score: int | None
    recovered: bool
    records: Sequence[Record]
    period: str | UnsetType = UNSET
    ranks: Ranks | UnsetType = UNSET


class Update(msgspec.Struct, frozen=True, tag="update", tag_field="type"):
    """What changed in the top since an offset; see `live.domain.ranking` for how to apply it.

    `recovered` is true in the first message to a viewer that came back, and missed no more than this.
    """

    epoch: str
    since: int
    offset: int
    rank_count: int
    total_score: int | None
    changed: Sequence[Record]
    removed: Sequence[str]
    period: str | UnsetType = UNSET
    recovered: bool | UnsetType = UNSET


class Status(msgspec.Struct, frozen=True, tag="status", tag_field="type", omit_defaults=True):
    """Whether what the viewer shows is up to date; `retry_after`, in seconds, when it is about to be let go."""

    stale: bool
    reason: str | None = None
    retry_after: float | None = None


class Viewers(msgspec.Struct, frozen=True, tag="viewers", tag_field="type"):
    """How many watch the board, in all processes."""

    count: int


class Around(msgspec.Struct, frozen=True, tag="around", tag_field="type"):
    """The record of the key that a viewer asked for: its neighbours, and what it misses to the rank above (`gap`).

    A key that is not on the board has no score, rank and gap.
    """

    epoch: str
    offset: int
    key: str
    rank_count: int
    score: int | None = None
    rank: int | None = None
    gap: int | None = None
    records: Sequence[Record] = ()


class Alive(msgspec.Struct, frozen=True, tag="alive", tag_field="type"):
    """The connection is alive: the server sends this after about 5 seconds without another message."""


MessageType = Literal["sync", "update", "status", "viewers", "around", "alive"]
_encode = msgspec.json.Encoder().encode


class Frame:
    """A message ready to be sent, shared by all who get it; `id` is the position that it takes a viewer to, if any."""

    def __init__(self, kind: MessageType, payload: bytes, identity: str = "") -> None:
        self.type = kind
        self.payload = payload
        self.id = identity

    @property
    def text(self) -> str:
        """The message as JSON."""
        return self.payload.decode()

    @cached_property
    def wire(self) -> bytes:
        """The message as a server's WebSocket frame: it is not masked, so it is the same for every viewer."""
        return websocket.Frame(websocket.Opcode.TEXT, self.payload).serialize(mask=False)

    @cached_property
    def event(self) -> bytes:
        """The message as a server-sent event; JSON has no line breaks outside of strings, nor unescaped in them."""
        position = f"id: {self.id}\n" if self.id else ""
        return f"{position}event: {self.type}\ndata: ".encode() + self.payload + b"\n\n"


ALIVE: Final = Frame("alive", _encode(Alive()))


def sync_frame(board: str, page: Page, size: int, ranks: Ranks, *, recovered: bool = False) -> Frame:
    """The top `size` of a page that begins at rank 1."""
    sync = Sync(
        board=board,
        epoch=page.epoch,
        offset=page.offset,
        rank_count=page.rank_count,
        total_score=page.total_score,
        recovered=recovered,
        records=page.records[:size],
        period=page.period or UNSET,
        ranks=UNSET if ranks == "ordinal" else ranks,
    )
    return Frame("sync", _encode(sync), position_id(page.epoch, page.offset))


def update_frame(old: Page, new: Page, size: int, *, recovered: bool = False) -> Frame:
    """What turns the top `size` of one page into that of another; both begin at rank 1 and share an epoch."""
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
        recovered=recovered or UNSET,
    )
    return Frame("update", _encode(update), position_id(new.epoch, new.offset))


def is_surely_smaller(update: Frame, page: Page, size: int) -> bool:
    """Whether an update is smaller than the sync that it replaces, as far as can be told without making that."""
    return len(update.payload) <= _LEAST_RECORD * min(size, len(page.records))


def status_frame(reason: str | None, retry_after: float | None = None) -> Frame:
    """The board is stale for a reason, or (None) up to date again."""
    return Frame("status", _encode(Status(reason is not None, reason, retry_after)))


def viewers_frame(count: int) -> Frame:
    """How many watch."""
    return Frame("viewers", _encode(Viewers(count)))


def around_frame(around: Around) -> Frame:
    """One key and its neighbours."""
    return Frame("around", _encode(around))


def position_id(epoch: str, offset: int) -> str:
    """A position as one word: the `id` of a server-sent event."""
    return f"{epoch}:{offset}"
