"""A cohort: viewers at one position with nothing waiting, so that a frame goes straight to their sockets.

The loop over a cohort is the hottest one of the fan-out. It writes the same bytes to one file descriptor after another,
with no lookup, check or await in between. A viewer that can't take a whole frame leaves the cohort.
"""

from os import write
from typing import Final, Protocol

from live.fanout.frames import Frame
from live.fanout.position import Position

MOST: Final = 256  # members of a cohort; the event loop has its turn between two cohorts
_BROKEN: Final = -1


class Member(Protocol):
    """A viewer, as its cohort sees it; `fd` is -1 where frames must go through `write`."""

    @property
    def fd(self) -> int:
        """The file descriptor of the socket."""

    def write(self, data: bytes | memoryview) -> bool:
        """Send, or let wait; False when some of it waits."""

    def abort(self) -> None:
        """The connection is broken."""


class Cohort:
    """Members at one position; it moves for all of them."""

    __slots__ = ("_direct", "_indirect", "position")

    def __init__(self, position: Position) -> None:
        self.position = position
        self._direct: dict[int, Member] = {}
        self._indirect: dict[Member, None] = {}

    def __len__(self) -> int:
        return len(self._direct) + len(self._indirect)

    def add(self, member: Member) -> None:
        """Take in a member that stands where we do."""
        if member.fd < 0:
            self._indirect[member] = None
        else:
            self._direct[member.fd] = member

    def discard(self, member: Member) -> None:
        """Let a member go, before its file descriptor is another's."""
        if member.fd < 0:
            self._indirect.pop(member, None)
        else:
            self._direct.pop(member.fd, None)

    def send(self, frame: Frame) -> list[Member]:
        """Give every member a frame; gives back those that have some of it waiting, and are members no more."""
        wire = frame.wire
        size = len(wire)
        short: list[tuple[int, int]] = []
        for fd in self._direct:
            try:
                sent = write(fd, wire)
            except BlockingIOError:
                sent = 0
            except OSError:
                sent = _BROKEN
            if sent != size:
                short.append((fd, sent))
        return [*self._finish(wire, short), *self._send_indirect(wire)]

    def _finish(self, wire: bytes, short: list[tuple[int, int]]) -> list[Member]:
        """Hand what did not fit to the transports."""
        behind: list[Member] = []
        rest = memoryview(wire)  # not copied for each: they may be many, and the frame large
        for fd, sent in short:
            member = self._direct.pop(fd)
            if sent == _BROKEN:
                member.abort()
            elif member.write(rest[sent:]):
                self._direct[fd] = member
            else:
                behind.append(member)
        return behind

    def _send_indirect(self, wire: bytes) -> list[Member]:
        behind = [member for member in self._indirect if not member.write(wire)]
        for member in behind:
            del self._indirect[member]
        return behind
