"""The top of a board, and how messages of the live route change it. No I/O."""

import msgspec

from live.domain.ranking import Ranks, Record, apply


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The first records of a board at one instant.

    Attributes:
        board: the id of the board.
        epoch: changes if the store lost data.
        offset: grows by one with every change of the board.
        rank_count: number of records of the whole board.
        total_score: sum of all scores; None if scores are not amounts.
        records: the records in order, each with member (`key`), score and rank.
        period: name of the period of a calendar board, such as `2026-W47`.
        stale: why the top may be out of date, such as a lost connection; None while it is live.
    """

    board: str
    epoch: str
    offset: int
    rank_count: int
    total_score: int | None
    records: tuple[Record, ...]
    period: str | None = None
    stale: str | None = None


class GapError(Exception):
    """An update does not start at the position of the top, so a message is missing."""


class Freshness(msgspec.Struct, frozen=True):
    """Whether the top is up to date. `retry_after` (seconds) announces that the server will close the connection."""

    stale: bool
    reason: str | None = None
    retry_after: float | None = None


class _Type(msgspec.Struct):
    type: str


class _Sync(msgspec.Struct):
    epoch: str
    offset: int
    rank_count: int
    total_score: int | None
    records: tuple[Record, ...]
    period: str | None = None
    ranks: Ranks = "ordinal"


class _Update(msgspec.Struct):
    epoch: str
    since: int
    offset: int
    rank_count: int
    total_score: int | None
    changed: tuple[Record, ...]
    removed: tuple[str, ...]
    period: str | None = None


_type_of = msgspec.json.Decoder(_Type).decode
_sync_of = msgspec.json.Decoder(_Sync).decode
_update_of = msgspec.json.Decoder(_Update).decode
_status_of = msgspec.json.Decoder(Freshness).decode


class TopState:
    """The top of a watcher. `top` is None until the first message with records."""

    def __init__(self, board: str) -> None:
        self.top: Top | None = None
        self._board = board
        self._ranks: Ranks = "ordinal"
        self._stale: str | None = None
        self._shown: Top | None = None

    def connected(self) -> None:
        """Start a new connection. Its first message says whether the top is stale."""
        self._stale = None

    def receive(self, message: str | bytes) -> Freshness | None:
        """Apply a message. Returns it if it is a status. Unknown message types are ignored.

        Raises:
            GapError: a message is missing.
        """
        kind = _type_of(message).type
        if kind == "sync":
            sync = _sync_of(message)
            self._ranks = sync.ranks
            self.top = self._moved(sync, sync.records)
        elif kind == "update":
            update = _update_of(message)
            self.top = self._moved(update, self._applied(update))
        elif kind == "status":
            status = _status_of(message)
            self.mark((status.reason or "the server is out of date") if status.stale else None)
            return status
        return None

    def mark(self, stale: str | None) -> None:
        """Set why the top may be out of date, or None if it is live."""
        self._stale = stale
        if self.top is not None and self.top.stale != stale:
            self.top = msgspec.structs.replace(self.top, stale=stale)

    def changed(self) -> Top | None:
        """The top if it differs from what this method returned last, otherwise None."""
        if self.top is self._shown:
            return None
        self._shown = self.top
        return self.top

    def _applied(self, update: _Update) -> tuple[Record, ...]:
        top = self.top
        if top is None or (top.epoch, top.offset) != (update.epoch, update.since):
            raise GapError
        return tuple(apply(top.records, update.changed, update.removed, self._ranks))

    def _moved(self, message: _Sync | _Update, records: tuple[Record, ...]) -> Top:
        return Top(
            board=self._board,
            epoch=message.epoch,
            offset=message.offset,
            rank_count=message.rank_count,
            total_score=message.total_score,
            records=records,
            period=message.period,
            stale=self._stale,
        )
