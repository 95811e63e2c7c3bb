"""What a process that steps through the journals of boards gives to their replays."""

from collections.abc import Collection
from typing import Protocol

import msgspec

from live.domain.board import Board
from live.errors import StoreUnavailableError
from live.fanout.frames import Frame, MessageType


class PlayedFrame(msgspec.Struct, frozen=True, array_like=True):
    """A message: for which time it is (milliseconds since 1970), its type, its JSON, and the position after it."""

    at: int
    type: MessageType
    payload: bytes
    position: str

    @property
    def frame(self) -> Frame:
        """The message as it is sent."""
        return Frame(self.type, self.payload, self.position)


class Played(msgspec.Struct, frozen=True):
    """The next messages of a replay.

    Attributes:
        whole: the whole top before them, if it was asked for and there is one.
        frames: the messages.
        now: the time to which the replay has come, in milliseconds since 1970.
    """

    whole: PlayedFrame | None
    frames: list[PlayedFrame]
    now: int


class TooLittleMemoryError(StoreUnavailableError):
    """The replays that run take too much memory for another one."""


class Players(Protocol):
    """The replays of a process, each with a number."""

    async def begin(
        self, address: str, board: Board, hidden: Collection[str], size: int, at: int
    ) -> tuple[int, int] | None:
        """Begin a replay of the top `size` at a time in milliseconds since 1970, without some hidden members.

        Addresses take turns, so that one with many replays delays only its own.

        Returns its number and the time at which it begins, which is later if the journal begins later. None if the
        journal has nothing of the board.

        Raises:
            TooLittleMemoryError: the replays that run take too much memory.
            StoreUnavailableError: the journal does not answer.
        """

    async def play(
        self, number: int, until: int, speed: float, interval: int, hidden: Collection[str] | None = None
    ) -> Played | None:
        """The next messages of a replay up to a time, at most one for each `interval` milliseconds of its viewers.

        With the members that are hidden now, it begins with the whole top. None if there is no such replay any more.

        Raises:
            StoreUnavailableError: the journal does not answer.
        """

    def end(self, number: int) -> None:
        """End a replay."""
