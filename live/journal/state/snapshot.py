"""The contents of a board according to its journal: the result of folding the entries."""

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar

import msgspec

from live.domain.board import Board, Shape
from live.errors import SetupError
from live.journal.state.ruled import Ruled
from live.journal.state.taken import NOTHING, Taken

Reached = tuple[int, int, int]
"""The tag of a member, which says when it reached its score: the time (ms) of an event, the offset of its batch, and
its number in the batch."""

IDENTITY: Final = 16  # bytes of the identity of an event
_TIME: Final = 6  # bytes of a time in a tag
_OFFSET: Final = 5  # bytes of an offset in a tag and in the name of an event of a log
_NUMBER: Final = 3  # bytes of the number after the offset
_PLACE: Final = _OFFSET + _NUMBER
_LAST: Final[Reached] = (2 ** (8 * _TIME) - 1, 2 ** (8 * _OFFSET) - 1, 2 ** (8 * _NUMBER) - 1)
_SHIFT: Final = 2**46  # ms, added to each time in a tag, so that times before 1970 are not negative
NEVER: Final[Reached] = (-_SHIFT, 0, 0)
_Name = TypeVar("_Name", str, bytes)


class Logged(msgspec.Struct, frozen=True, array_like=True):
    """An event in the log of a sliding window. `offset` is the offset of its batch, and `number` its number there."""

    time: int
    offset: int
    number: int
    member: str
    amount: int


class Ranking(msgspec.Struct):
    """The data of one ranking."""

    # The tag of each member, if time decides ties. A member without a record may still have a tag.
    reached: dict[str, Reached] = {}
    metadata: dict[str, bytes] = {}  # the metadata (JSON) of members
    # The number of votes of each voter, and of each voter for each member. The keys are digests.
    votes: dict[bytes, int] = {}


class Snapshot(msgspec.Struct, kw_only=True):
    """Everything that a board holds at an offset."""

    shape: str = ""  # the choices that determine the meaning of the data, as JSON
    secret: bytes = b""  # the key of the digests of voters
    offset: int = 0  # the board's offset
    time: int = 0  # when the last entry was made, in microseconds since 1970
    link: str = ""  # the link of the last entry
    edition: int = 0  # how often a swap has replaced the contents in this epoch
    taken: Taken = NOTHING  # the events that swaps have taken back
    ahead: Taken = NOTHING  # the events that are left out although the swap that takes them back comes later
    ruled: Ruled = Ruled()  # the last change of rules. Entries before it are counted by these rules too
    ruled_at: int = 0  # the board's offset after the last change of rules that the contents have reached
    origin: str = ""  # until the entry with this change, the shape by which entries are planned; empty from then on
    newest: int | None = None  # the start of the newest slot; None if there is no slot yet
    latest: int | None = None  # the newest event time, in milliseconds; None if there is none
    # By the start of each slot, the amount of each member. A sliding window has its events in `log` instead.
    slots: dict[int, dict[str, int]] = {}
    rankings: dict[str, Ranking] = {}  # by the suffix of each ranking, the data of the ranking
    log: list[Logged] = []  # the events of a sliding window, in the order in which they were counted
    entrants: dict[str, bytes] = {}  # the registered members, with their metadata (JSON)
    hidden: set[str] = set()  # the hidden members, which have no record
    seen: dict[int, set[bytes]] = {}  # by the start of each bucket, the identities of the counted events in the bucket
    span: int = 0  # the seconds that a bucket covers; 0 if it is not known
    kept: int | None = None  # for how many seconds after its start a bucket is kept; None if it is not known

    def shown(self, epoch: str) -> str:
        """Return the epoch of the board as clients see it, without the reign."""
        return f"{epoch}e{self.edition}" if self.edition else epoch

    def lacks(self, taken: Taken) -> bool:
        """Return whether these events are left out."""
        return not taken.without(self.taken).without(self.ahead)

    def ranking(self, suffix: str) -> Ranking:
        """Return the data of a ranking, which is empty at first."""
        found = self.rankings.get(suffix)
        if found is None:
            found = self.rankings[suffix] = Ranking()
        return found

    def has_more(self, period: int) -> bool:
        """Tell whether a period of a calendar board has votes, or places among ties."""
        ranking = self.rankings.get(f":{period}")
        return ranking is not None and bool(ranking.votes or ranking.reached)

    @property
    def digests(self) -> set[bytes]:
        """All digests in the votes and the identities."""
        return set[bytes]().union(*(ranking.votes for ranking in self.rankings.values()), *self.seen.values())

    def forget_digests(self, digests: Collection[bytes]) -> None:
        """Remove digests from the votes and the identities."""
        for ranking in self.rankings.values():
            for digest in digests:
                ranking.votes.pop(digest, None)
        for seen in self.seen.values():
            seen.difference_update(digests)

    def forget_members(self, members: AbstractSet[str]) -> bool:
        """Remove members. Return whether there were any."""
        fields: list[dict[str, Any]] = [self.entrants, *self.slots.values()]
        for ranking in self.rankings.values():
            fields += ranking.reached, ranking.metadata
        log = [event for event in self.log if event.member not in members]
        found = [(held, member) for held in fields for member in members if member in held]
        is_known = bool(found or self.hidden & members or len(log) < len(self.log))
        for held, member in found:
            del held[member]
        self.hidden -= members
        self.log = log
        return is_known

    def drop_before(self, first: int) -> None:
        """Drop the periods of a calendar board that start before a time."""
        for start in [start for start in self.slots if start < first]:
            del self.slots[start]
            self.rankings.pop(f":{start}", None)


def add(held: dict[_Name, int], name: _Name, amount: int) -> None:
    """Add an amount to the sum of a name. Remove a sum of zero."""
    value = held.get(name, 0) + amount
    if value:
        held[name] = value
    else:
        held.pop(name, None)


def reached_of(shape: str, tag: bytes) -> Reached:
    """Return the time, the offset and the number in a tag."""
    tags = msgspec.json.decode(shape, type=Shape).tags
    held = tag[:_TIME], tag[_TIME:-_NUMBER], tag[-_NUMBER:]
    time, offset, number = _turned(tags, (int.from_bytes(held[0]), int.from_bytes(held[1]), int.from_bytes(held[2])))
    return time - _SHIFT, offset, number


def tag_of(board: Board, reached: Reached) -> bytes:
    """Return the tag for a time, an offset and a number, as the store keeps it."""
    time, offset, number = _turned(board.tags, (reached[0] + _SHIFT, reached[1], reached[2]))
    return time.to_bytes(_TIME) + offset.to_bytes(_OFFSET) + number.to_bytes(_NUMBER)


def _turned(tags: str, reached: Reached) -> Reached:
    """Turn a time, an offset and a number into those of a tag, or back: if tags fall, a later event has a lower tag."""
    if tags != "falling":
        return reached
    return _LAST[0] - reached[0], _LAST[1] - reached[1], _LAST[2] - reached[2]


def logged_of(name: bytes, time: int) -> Logged:
    """Parse the name of an event in the store's log."""
    offset, number = int.from_bytes(name[:_OFFSET]), int.from_bytes(name[_OFFSET:_PLACE])
    amount, _, member = name[_PLACE:].partition(b" ")
    return Logged(time, offset, number, member.decode(), int(amount))


def name_of(event: Logged) -> bytes:
    """Return the name of an event in the store's log."""
    place = event.offset.to_bytes(_OFFSET) + event.number.to_bytes(_NUMBER)
    return place + f"{event.amount} {event.member}".encode()


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Snapshot)


def pack(contents: Snapshot) -> bytes:
    """Encode contents."""
    return _ENCODER.encode(contents)


def unpack(data: bytes) -> Snapshot:
    """Decode contents."""
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise SetupError(f"a checkpoint of the journal is damaged: {error}") from None
