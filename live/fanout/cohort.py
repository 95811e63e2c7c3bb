"""A cohort: viewers at the same position with nothing waiting to be sent, so a frame goes straight to their sockets.

The loop over a cohort is the hottest one of the fan-out. It writes the same bytes to one file descriptor after another,
with no lookup, check or await in between. A viewer that can't take a whole frame leaves the cohort.
"""

from os import write
from typing import Final, Protocol

from live.fanout.position import Position

MOST: Final = 256  # members; between two cohorts, other tasks of the event loop run
_BROKEN: Final = -1


class Member(Protocol):
    """A viewer as its cohort sees it. `fd` is -1 if frames must go through `write`."""

    @property
    def fd(self) -> int:
        """The file descriptor of the socket."""

    def write(self, data: bytes | memoryview) -> bool:
        """Send data, or queue it. Returns False if some of it is queued."""

    def abort(self) -> None:
        """Close a broken connection."""

    def join(self, cohort: "Cohort") -> None:
        """Become a member of a cohort."""


class Cohort:
    """Members that share one position."""

    __slots__ = ("_direct", "_indirect", "position")

    def __init__(self, position: Position) -> None:
        self.position = position
        self._direct: dict[int, Member] = {}
        self._indirect: dict[Member, None] = {}

    def __len__(self) -> int:
        return len(self._direct) + len(self._indirect)

    def add(self, member: Member) -> None:
        """Add a member that is at the position of the cohort."""
        if member.fd < 0:
            self._indirect[member] = None
        else:
            self._direct[member.fd] = member

    def discard(self, member: Member) -> None:
        """Remove a member. Call this before another connection can reuse its file descriptor."""
        if member.fd < 0:
            self._indirect.pop(member, None)
        else:
            self._direct.pop(member.fd, None)

    def move_all(self, other: "Cohort") -> None:
        """Move all members to another cohort in the same state."""
        members = [*self._direct.values(), *self._indirect]
        self._direct.clear()
        self._indirect.clear()
        for member in members:
            member.join(other)

    def send(self, wire: bytes) -> list[Member]:
        """Send a frame to every member.

        Returns the members that left the cohort because some of the frame is queued.
        """
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
        """Pass what the sockets did not take to the transports."""
        behind: list[Member] = []
        rest = memoryview(wire)  # a view, because copies of a large frame for many members would fill the memory
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
