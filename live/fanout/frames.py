"""Messages to viewers, encoded once for all of them."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from live.ranking import Page, Ranks, Record, diff


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
    """What changed in the top since an offset; see `live.ranking` for how to apply it."""

    epoch: str
    since: int
    offset: int
    rank_count: int
    total_score: int | None
    changed: Sequence[Record]
    removed: Sequence[str]
    period: str | UnsetType = UNSET


class Status(msgspec.Struct, frozen=True, tag="status", tag_field="type", omit_defaults=True):
    """Whether what the viewer shows is up to date."""

    stale: bool
    reason: str | None = None


MessageType = Literal["sync", "update", "status"]


class Frame(msgspec.Struct, frozen=True):
    """A message ready to be sent, shared by all who get it."""

    type: MessageType
    text: str


_encode = msgspec.json.Encoder().encode


def sync_frame(board: str, page: Page, size: int, ranks: Ranks) -> Frame:
    """The top `size` of a page that begins at rank 1."""
    sync = Sync(
        board=board,
        epoch=page.epoch,
        offset=page.offset,
        rank_count=page.rank_count,
        total_score=page.total_score,
        recovered=False,
        records=page.records[:size],
        period=page.period or UNSET,
        ranks=UNSET if ranks == "ordinal" else ranks,
    )
    return Frame("sync", _encode(sync).decode())


def update_frame(old: Page, new: Page, size: int) -> Frame:
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
    )
    return Frame("update", _encode(update).decode())


def status_frame(reason: str | None) -> Frame:
    """The board is stale for a reason, or (None) up to date again."""
    return Frame("status", _encode(Status(reason is not None, reason)).decode())
