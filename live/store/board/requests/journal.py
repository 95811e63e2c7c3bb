"""The requests of the scripts that begin, trim and restore journals; see `write.py`."""

import msgspec

from live.store.board.requests.write import SlotRef
from live.store.connection.scripts import Text


class AdoptRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Begin the journal of a board that has data.

    `slots` are all slots of the board, in the order of their starts. `buckets` are the starts of the buckets of
    identities, whose store keys are the last ones, and `bucket` is the newest one that the board ever had. `tables`
    means that each slot has a ranking of its own. `again` means to begin a journal that has begun once more.
    """

    epoch: str
    slots: list[SlotRef] = []
    buckets: list[int] = []
    bucket: int | None = None
    tables: bool = False
    again: bool = False


class RestoreRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Make a board of what was written under its store keys.

    Attributes:
        epoch: the epoch to give it.
        shape: the settings on which the meaning of the stored data depends.
        offset: the offset from which it continues.
        secret: random bytes that key the digests of voters.
        fields: more fields of its state, and their values in turn.
        made: whether the board was created at run time.
        parent: the epoch that it continues.
        link: the last entry in the journal of that epoch.
    """

    epoch: str
    shape: str
    offset: str
    secret: Text
    fields: list[str]
    made: bool = False
    parent: str
    link: str


class TrimRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Record that everything up to an offset is in SQL, and drop it.

    `least` is the id of the first entry to keep, and `drained` the number of bytes in SQL; without them, every entry
    stays, and counts against the limit of the backlog.
    """

    epoch: str
    offset: int
    least: str | None = None
    drained: int | None = None
