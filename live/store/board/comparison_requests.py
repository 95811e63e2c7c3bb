"""The requests of the scripts that compare a board with its journal, and correct it; see `requests`."""

import msgspec

from live.store.board.requests import Rules
from live.store.connection.scripts import Text


class PieceRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read a piece of what a board holds under one store key.

    Attributes:
        epoch: the epoch that the caller knows.
        cursor: what the last piece returned, or `0`.
        count: about how many names to return.
        names: the names to return, in place of a cursor.
        sorted: the store key is a sorted set.
        by_event: the board's clock is that of the newest event.
        window: the length of a sliding window in milliseconds, to return the events that have left it.
        most_due: how many of these events to return at most.
    """

    epoch: str
    cursor: str
    count: int
    names: list[Text] | None = None
    sorted: bool = False
    by_event: bool = False
    window: int | None = None
    most_due: int


class MendRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Correct values under one store key, or write them to the journal only.

    Attributes:
        epoch: the epoch that the caller knows.
        channel: the channel on which the change is announced.
        writer: who sends the correction.
        sequence: the number of the correction among those of this writer; a retry has the same number.
        rules: the rules of the board.
        teach: the journal learns what the store holds, and the store stays as it is.
        compared: the offset at which store and journal were compared.
        newest: the newest slot of the board; None for none.
        kind: `slot`, `log`, `taken`, `votes`, `reached`, `metadata`, `entrants` or `hidden`.
        start: the start of the slot, of the kind `slot`.
        suffix: the suffix of the ranking.
        starts: the starts of all slots, if several of them add up to a score.
        names: the names whose values are corrected.
        amounts: what is added to each value; None for values that do not add up.
        seen: the values that the store had when they were compared, empty for none; with `values`.
        values: the right values, empty for none.
        tags: of the kind `slot`, the tags of members for those that have none; empty for none.
    """

    epoch: str
    channel: str
    writer: str
    sequence: int
    rules: Rules
    teach: bool = False
    compared: int
    newest: int | None = None
    kind: str
    start: int | None = None
    suffix: str
    starts: list[str] | None = None
    names: list[Text]
    amounts: list[int] | None = None
    seen: list[Text] | None = None
    values: list[Text] | None = None
    tags: list[Text] | None = None
