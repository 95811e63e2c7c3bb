"""Everything that a board holds, according to its journal: the result of folding the entries."""

from typing import Final

import msgspec

from live.errors import SetupError

Reached = tuple[int, int]
"""The tag of a member: the offset, and the number of the event with which it reached its score."""

IDENTITY: Final = 16  # bytes


class Logged(msgspec.Struct, frozen=True, array_like=True):
    """An event in the log of a sliding window: its time, its batch and number there, its member and amount."""

    time: int
    offset: int
    number: int
    member: str
    amount: int


class Ranking(msgspec.Struct):
    """The data of one ranking.

    Attributes:
        reached: where ties go by time, the tag of each member. Members that have lost their record may still have one.
        metadata: the metadata (JSON) of members.
        votes: for each digest of a voter, and of a voter and a member, how many votes.
    """

    reached: dict[str, Reached] = {}
    metadata: dict[str, bytes] = {}
    votes: dict[bytes, int] = {}


class Snapshot(msgspec.Struct, kw_only=True):
    """Everything that a board holds at an offset.

    Attributes:
        shape: the choices that determine the meaning of the data, as JSON.
        secret: the key of the digests of voters.
        offset: the board's offset.
        time: when the last entry was made, in microseconds since 1970.
        link: the link of the last entry.
        newest: the newest slot; None for none.
        latest: the newest event time, in milliseconds; None for none.
        slots: for the start of each slot, what it holds of each member. On a sliding window, `log` has it.
        rankings: for the suffix of each ranking, its data.
        log: the events of a sliding window, in the order in which they were counted.
        entrants: the registered members, with their metadata (JSON).
        hidden: the members without a record.
        seen: for the start of each bucket, the identities in it.
        span: the seconds that a bucket covers; 0 if it is not known.
    """

    shape: str = ""
    secret: bytes = b""
    offset: int = 0
    time: int = 0
    link: str = ""
    newest: int | None = None
    latest: int | None = None
    slots: dict[int, dict[str, int]] = {}
    rankings: dict[str, Ranking] = {}
    log: list[Logged] = []
    entrants: dict[str, bytes] = {}
    hidden: set[str] = set()
    seen: dict[int, set[bytes]] = {}
    span: int = 0

    def ranking(self, suffix: str) -> Ranking:
        """Return the data of a ranking."""
        found = self.rankings.get(suffix)
        if found is None:
            found = self.rankings[suffix] = Ranking()
        return found


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Snapshot)


def pack(contents: Snapshot) -> bytes:
    """Encode contents."""
    return _ENCODER.encode(contents)


def unpack(data: bytes) -> Snapshot:
    """Decode contents.

    Raises:
        SetupError: the data is damaged.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise SetupError(f"a checkpoint of the journal is damaged: {error}") from None
