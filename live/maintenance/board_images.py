"""Rebuilds boards in an empty store from the journal."""

import math
from collections.abc import Callable, Sequence

import msgspec

from live.domain.board import Board
from live.journal.corrections import name_of
from live.journal.state.fold import tag_of
from live.journal.state.ranking import live_events, live_slots, newest_slot, ranked_at
from live.journal.state.snapshot import Ranking, Snapshot
from live.store.board.keys import Keys
from live.store.board.manage.restore import BoardImage, RankingImage, restore
from live.store.board.read.pages import HIGH
from live.store.board.requests.journal import RestoreRequest
from live.store.connection.client import Store
from live.store.connection.scripts import text


class Rebuilt(msgspec.Struct, frozen=True):
    """A board that was rebuilt: its new epoch, its offset, and how many members it has."""

    board: str
    epoch: str
    offset: int
    members: int


async def load(  # noqa: PLR0913 - where from, where to, and how
    client: Store,
    keys: Keys,
    board: Board,
    data: Snapshot,
    *,
    epoch: str,
    parent: str,
    dedupe_window: float,
    made: bool,
    progress: Callable[[int, int], None],
) -> Rebuilt | None:
    """Write a board's contents into the store under a new epoch. Returns None if the store has such a board.

    Raises:
        StoreUnavailableError: the store is unavailable.
    """
    image = image_of(board, data, dedupe_window)
    request = RestoreRequest(
        epoch=epoch,
        shape=board.shape.encode(),
        offset=str(data.offset),
        secret=text(data.secret),
        fields=_fields(board, data, image.rankings),
        made=made,
        parent=parent,
        link=data.link,
    )
    written = await restore(client, keys, image, request, lambda done: progress(done, image.size))
    members = sum(len(ranking.records) for ranking in image.rankings)
    return Rebuilt(keys.board, epoch, data.offset, members) if written else None


def image_of(board: Board, data: Snapshot, dedupe_window: float) -> BoardImage:
    """What the store keys of a board hold, by its contents. Slots that have left the window are left out."""
    now = data.time // 1000
    log, slots = live_events(board, data, now), live_slots(board, data, now)
    newest = newest_slot(board, data, now)
    if board.window.tables and newest is not None:
        slots = {start: slot for start, slot in data.slots.items() if start >= board.window.oldest(newest)}
    starts = list(slots) if board.window.tables else [None]
    taken: dict[str, int] = {}
    for event in log:
        if event.amount < 0:
            taken[event.member] = taken.get(event.member, 0) - event.amount
    kept = math.ceil(max(dedupe_window, board.remembers) / data.span) + 3 if data.span else 0
    return BoardImage(
        slots={start: slot for start, slot in slots.items() if slot},
        rankings=[_ranking(board, data, now, start) for start in starts],
        log=[(name_of(event), event.time) for event in log],
        taken=taken,
        entrants=data.entrants,
        hidden=data.hidden,
        seen=data.seen,
        kept=kept * data.span,
    )


def _ranking(board: Board, data: Snapshot, now: int, start: int | None) -> RankingImage:
    suffix = "" if start is None else f":{start}"
    found = ranked_at(board, data, now, start)
    held = data.rankings.get(suffix, Ranking())
    reached: dict[str, bytes] = {}
    if board.tags != "key":
        # A hidden member keeps its place among ties, even while its amounts cancel out.
        tags = held.reached.items()
        reached = {key: tag_of(board, tag) for key, tag in tags if key in found.scores or key in data.hidden}
    return RankingImage(
        suffix=suffix,
        records=[(reached.get(member, b"") + member.encode(), found.scores[member]) for member in found.members],
        reached=reached,
        metadata={member: value for member, value in held.metadata.items() if member in found.scores},
        votes=held.votes,
        dense=board.ranks == "dense",
    )


def _fields(board: Board, data: Snapshot, rankings: Sequence[RankingImage]) -> list[str]:
    """The fields of a board's state that follow from its contents."""
    fields: dict[str, int] = {}
    if data.newest is not None:
        fields["newest"] = data.newest
    if data.latest is not None and board.clock == "event":
        fields["latest"] = data.latest
    if data.span:
        fields["span"] = data.span
    if data.seen:
        fields["bucket"] = max(data.seen)
    for ranking in rankings:
        total = sum(score for _, score in ranking.records) if board.summed else 0
        high = total >> HIGH
        fields[f"total{ranking.suffix}"] = total - (high << HIGH)
        fields[f"high{ranking.suffix}"] = high
    return [word for name, value in fields.items() for word in (name, str(value))]
