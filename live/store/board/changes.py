"""The changes that notices carry, and the page that follows from them: exactly the one that a read would give."""

import struct
from collections.abc import Iterable, Sequence
from itertools import count as count_from
from typing import Final

import msgspec
from msgspec import UNSET

from live.domain.board import Board
from live.domain.ranking import Page, Record, position, ranks_of

_PACKED: Final = b"\x98"  # the first byte of a packed list of eight
_KEPT: Final = -1
_OFFSETS: Final = (1 << 40) - 1
_EVENTS: Final = (1 << 24) - 1
_Place = tuple[int, bytes]  # a score and a name


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What a batch did to a ranking.

    Attributes:
        epoch: the epoch of the board.
        offset: the offset after the batch; the change follows from the offset before it.
        suffix: the end of the store keys of the ranking.
        count: by how much the number of records grew.
        total: by how much the total of all scores grew.
        members: the members whose records changed.
        scores: the score of each; False for no record.
        events: the number in the tag of each; -1 if it keeps its tag.
    """

    epoch: str
    offset: int
    suffix: str
    count: int
    total: int
    members: list[str]
    scores: list[int | bool]
    events: list[int]


_decode: Final = msgspec.msgpack.Decoder(Change).decode


def is_carried(notice: bytes) -> bool:
    """Whether a notice carries the change."""
    return notice.startswith(_PACKED)


def changes_in(notices: Iterable[bytes]) -> list[Change] | None:
    """The changes that notices carry; None if one can't be decoded, such as that of another version of the scripts."""
    try:
        return [_decode(notice) for notice in notices]
    except msgspec.DecodeError:
        return None


def follow(board: Board, page: Page, suffix: str, changes: Iterable[Change], most: int) -> Page | None:
    """The page after changes. None if they do not follow from the page, or do not say enough: then read the board.

    The page must begin with the first record. Whatever it does not hold lies behind its last record. The new page may
    have fewer records for that reason.

    Args:
        board: the board, with the settings by which the page was read.
        page: the page.
        suffix: the end of the store keys of the ranking that the page shows.
        changes: the changes, in order. Those that the page shows already are skipped.
        most: the most records that the new page holds.
    """
    new = [change for change in changes if change.epoch != page.epoch or change.offset > page.offset]
    for offset, change in enumerate(new, page.offset):
        if not _is_next(change, page.epoch, offset) or change.suffix != suffix:
            return None
    if not new:
        return page
    places = _places(board, page, new)
    if places is None:
        return None
    records, names = _placed(board, page, places)
    return Page(
        epoch=page.epoch,
        offset=new[-1].offset,
        rank_count=page.rank_count + sum([change.count for change in new]),
        total_score=None if page.total_score is None else page.total_score + sum([change.total for change in new]),
        start=0,
        records=_ranked(records[:most], board),
        names=tuple(names[:most]),
        entrants=page.entrants,
        slot=page.slot,
        period=page.period,
    )


def _is_next(change: Change, epoch: str, offset: int) -> bool:
    """Whether a change follows from a position, with none in between."""
    return change.epoch == epoch and change.offset == offset + 1


def _places(board: Board, page: Page, changes: Iterable[Change]) -> dict[str, _Place | None] | None:
    """Where changes put members, None for no record; or None if the changes do not say it."""
    places: dict[str, _Place | None] = {}
    held = {record.key: name for record, name in zip(page.records, page.names, strict=True)}
    for change in changes:
        for member, score, event in zip(change.members, change.scores, change.events, strict=True):
            if score is False:
                places[member] = None
                continue
            before = places[member] if member in places else (0, held.get(member, b""))
            is_named = event != _KEPT or board.tags == "key"
            name = _name(board, member, change.offset, event) if is_named else before and before[1]
            if not name or (board.votes and member not in held):  # the tag or the metadata is unknown
                return None
            places[member] = (score, name)
    return places


def _placed(board: Board, page: Page, places: dict[str, _Place | None]) -> tuple[list[Record], list[bytes]]:
    """The records and names of a page with members at new places; None for no record."""
    before = {record.key: record for record in page.records if record.key in places}
    kept = [pair for pair in zip(page.records, page.names, strict=True) if pair[0].key not in before]
    records, names = [record for record, _ in kept], [name for _, name in kept]
    is_whole = len(page.records) >= page.rank_count
    for member, place in places.items():
        if place is None or not (is_whole or _is_held(board, place, page.last)):
            continue
        at = _index(board, records, names, place)
        records.insert(at, _record(board, member, place[0], before.get(member)))
        names.insert(at, place[1])
    return records, names


def _name(board: Board, member: str, offset: int, event: int) -> bytes:
    """The name of a record in the ranking, as the scripts make it."""
    if board.tags == "key":
        return member.encode()
    if board.tags == "falling":
        offset, event = _OFFSETS - offset, _EVENTS - event
    return struct.pack(">Q", offset << 24 | event) + member.encode()


def _is_ahead(board: Board, place: _Place, other: _Place) -> bool:
    """Whether a place is before another one in the order of the ranking."""
    if place[0] != other[0]:
        return (place[0] < other[0]) == (board.reading == "forward")
    return place[1] > other[1] if board.reading == "backward" else place[1] < other[1]


def _is_held(board: Board, place: _Place, last: _Place | None) -> bool:
    """Whether a place is not behind the last record that the page held."""
    return last is not None and not _is_ahead(board, last, place)


def _index(board: Board, records: Sequence[Record], names: Sequence[bytes], place: _Place) -> int:
    """Where a record at a place belongs among records."""
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        if _is_ahead(board, (records[middle].score, names[middle]), place):
            low = middle + 1
        else:
            high = middle
    return low


def _record(board: Board, member: str, score: int, before: Record | None) -> Record:
    """A record whose rank is not known yet. A change carries no metadata: that of a contest's members stays."""
    metadata = before.metadata if before is not None and board.votes else UNSET
    return Record(member, score, 0, UNSET if board.score is None else board.score.unpack(score), metadata)


def _ranked(records: Sequence[Record], board: Board) -> tuple[Record, ...]:
    """The records with their ranks and positions. A record that is right is the same object."""
    if board.ranks == "ordinal":
        return tuple(
            [
                record
                if record.rank == rank
                else Record(record.key, record.score, rank, record.fields, record.metadata)
                for rank, record in zip(count_from(1), records, strict=False)
            ]
        )
    ranks = ranks_of([record.score for record in records], 1, 0, board.ranks)
    return tuple(
        [
            msgspec.structs.replace(record, rank=rank, position=position(rank, place))
            for place, (record, rank) in enumerate(zip(records, ranks, strict=True), 1)
        ]
    )
