"""The contents of a board as they would be by other rules, where they say enough."""

from live.domain.board import Board
from live.domain.window import Forever, Rolling, Sliding
from live.journal.state.ruled import FOREVER, Ruled
from live.journal.state.snapshot import Snapshot


def keeps_tags(old: Board, new: Board) -> bool:
    """Return whether members get and lose tags without an event at the same times by other rules."""
    before, after = old.shape, new.shape
    has_same = (before.window, before.operation, before.zeros) == (after.window, after.operation, after.zeros)
    return has_same and "key" not in {old.ties, new.ties}


def base_of(data: Snapshot, ruled: Ruled) -> Snapshot | None:
    """Return contents as they would be by other rules. Return None if they do not say enough."""
    board, before = ruled.board, ruled.board_of(data.shape)
    old, new = before.shape, board.shape
    if _is_before(data, before, ruled.since):
        data.slots, data.log, data.rankings = {}, [], {}
    elif not _is_enough(data, before, ruled):
        return None
    elif new.tags == "key":
        for ranking in data.rankings.values():
            ranking.reached = {}
    if old.window != new.window:
        slots = dict[int, dict[str, int]]()
        for start, slot in data.slots.items():
            into = slots.setdefault(board.window.slot_at(start).start, {})
            for member, amount in slot.items():
                into[member] = into.get(member, 0) + amount
        data.slots = slots
        if data.newest is not None:
            moment = data.time // 1_000_000 if board.clock == "server" else (data.latest or 0) // 1000
            data.newest = board.window.slot_at(moment).start
    if new.operation == "incr" and not new.zeros:
        data.slots = {start: {key: value for key, value in slot.items() if value} for start, slot in data.slots.items()}
    data.shape, data.origin, data.ruled = new.encode(), data.shape, ruled
    return data


def _is_before(data: Snapshot, before: Board, since: int) -> bool:
    """Return whether nothing counts from a time on (seconds), neither in some contents nor what has left them."""
    if since == FOREVER or _reach(data, before) > since:
        return False
    ends = [before.window.slot_at(start).end for start in data.slots]
    times = [-(-event.time // 1000) for event in data.log]
    return max((*ends, *times), default=since) <= since


def _reach(data: Snapshot, board: Board) -> int:
    """Return from which time on (seconds) some contents have everything that counts."""
    window = board.window
    if isinstance(window, Sliding):
        moment = (data.latest or 0) if board.clock == "event" else data.time // 1000
        return -(-moment // 1000) - window.length
    return FOREVER if data.newest is None or isinstance(window, Forever) else window.oldest(data.newest)


def _is_enough(data: Snapshot, before: Board, ruled: Ruled) -> bool:
    """Return whether the amounts and places in some contents say what the board holds by other rules."""
    board, old, new = ruled.board, before.shape, ruled.board.shape
    if (old.operation, old.fields, old.clock) != (new.operation, new.fields, new.clock):
        return False
    is_packed_anew = board.score and old.window != new.window  # the number of slots decides how fields are packed
    if is_packed_anew or (new.zeros and not old.zeros) or (old.tags == "key" and new.tags != "key"):
        return False
    if board.cap is not None and (old.tags, old.window) != (new.tags, new.window):
        return False
    match before.window, board.window:
        case Rolling(length, slot), Rolling(longer, coarser):
            is_divided = coarser % slot == 0 and (coarser == slot or old.operation == "incr")
            return is_divided and (longer <= length or _reach(data, before) <= ruled.since)
        case Sliding(length), Sliding(longer):
            return longer <= length or _reach(data, before) <= ruled.since
    return old.window == new.window
