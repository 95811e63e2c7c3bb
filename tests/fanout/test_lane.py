"""Lanes over real sockets: every byte of every frame, or a viewer that is out of the lane."""

from collections.abc import Iterator
from contextlib import suppress
from socket import SO_SNDBUF, SOL_SOCKET, socketpair

import pytest

from live.fanout.frames import Frame
from live.fanout.lane import Lane, Member
from live.fanout.position import Position

SMALL, LARGE = Frame("update", b'{"n":1}'), Frame("sync", bytes(range(256)) * 2000)


class End:
    """One viewer's connection: `own` is the server's side, `peer` the viewer's."""

    def __init__(self, *, direct: bool = True) -> None:
        self.own, self.peer = socketpair()
        self.own.setsockopt(SOL_SOCKET, SO_SNDBUF, 4096)
        for side in (self.own, self.peer):
            side.settimeout(0)
        self.fd = self.own.fileno() if direct else -1
        self.rest = b""
        self.aborted = False

    def write(self, data: bytes | memoryview) -> bool:
        self.rest += bytes(data)
        return self.flush()

    def flush(self) -> bool:
        with suppress(BlockingIOError, BrokenPipeError):
            while self.rest:
                self.rest = self.rest[self.own.send(self.rest) :]
        return not self.rest

    def abort(self) -> None:
        self.aborted = True

    def read(self) -> bytes:
        """Everything that the viewer gets."""
        found = b""
        while True:
            try:
                piece = self.peer.recv(65536)
            except BlockingIOError:
                if not self.rest:
                    return found
                self.flush()
            else:
                found += piece

    def read_own(self) -> bytes:
        """What came to the server's side."""
        with suppress(BlockingIOError):
            return self.own.recv(1 << 20)
        return b""

    def fill(self) -> int:
        """Send until nothing more is taken; gives how much that was."""
        sent = 0
        with suppress(BlockingIOError):
            while True:
                sent += self.own.send(b"." * 100)
        return sent

    def close(self) -> None:
        self.own.close()
        self.peer.close()


@pytest.fixture
def ends() -> Iterator[list[End]]:
    """Three connections."""
    found = [End() for _ in range(3)]
    yield found
    for end in found:
        end.close()


def lane_of(ends: list[End], kind: type[Lane] = Lane) -> Lane:
    """A lane of these."""
    lane = kind(Position("e", 1))
    for end in ends:
        lane.add(end)
    return lane


def test_all_get_the_same_bytes(ends: list[End]) -> None:
    """Directly, and through the connection where there is no descriptor."""
    ends.append(End(direct=False))
    lane = lane_of(ends)
    assert lane.send(SMALL) == []
    assert lane.send(SMALL) == []
    assert [end.read() for end in ends] == [SMALL.wire * 2] * 4
    assert len(lane) == 4


def test_a_frame_that_does_not_fit_is_sent_to_its_end(ends: list[End]) -> None:
    """What is left goes through the connection, and the viewer leaves the lane until that is done."""
    lane = lane_of(ends)
    assert lane.send(LARGE) == ends
    assert len(lane) == 0
    assert lane.send(SMALL) == []
    assert [end.read() for end in ends] == [LARGE.wire] * 3


def test_only_who_is_behind_leaves(ends: list[End]) -> None:
    """One that takes nothing holds nobody up, and gets the frame behind what waits."""
    lane = lane_of(ends)
    before = ends[1].fill()
    assert lane.send(SMALL) == [ends[1]]
    assert len(lane) == 2
    assert lane.send(SMALL) == []
    assert [end.read() for end in ends] == [SMALL.wire * 2, b"." * before + SMALL.wire, SMALL.wire * 2]


class Quick(End):
    """One whose connection takes the rest at once: it was read in between."""

    def write(self, data: bytes | memoryview) -> bool:
        self.taken = self.peer.recv(1 << 20)
        return super().write(data)


def test_who_takes_the_rest_at_once_stays() -> None:
    """The lane goes on with it."""
    end = Quick()
    lane = lane_of([end])
    before = end.fill()
    assert lane.send(SMALL) == []
    assert len(lane) == 1
    assert end.taken + end.read() == b"." * before + SMALL.wire
    end.close()


def test_the_broken_are_aborted(ends: list[End]) -> None:
    """A viewer that has gone is no member any more; the others get every frame."""
    lane = lane_of(ends)
    ends[0].peer.close()
    ends[2].own.close()
    assert lane.send(SMALL) == []
    assert [end.aborted for end in ends] == [True, False, True]
    assert len(lane) == 1
    assert ends[1].read() == SMALL.wire


@pytest.mark.parametrize("direct", [True, False])
def test_who_leaves_gets_nothing(*, direct: bool) -> None:
    """Nor does whoever has its descriptor after it; leaving twice is leaving."""
    gone, lane = End(direct=direct), Lane(Position("e", 1))
    lane.add(gone)
    lane.discard(gone)
    lane.discard(gone)
    gone.close()
    heir = End(direct=direct)
    assert lane.send(SMALL) == []
    assert (heir.read(), len(lane)) == (b"", 0)
    heir.close()


class KeepsTheSlow(Lane):
    """A lane as one would write it first: what does not fit is handed on, and the viewer stays."""

    __slots__ = ()

    def _finish(self, wire: bytes, short: list[tuple[int, int]]) -> list[Member]:
        for fd, sent in short:
            self._direct[fd].write(wire[sent:])
        return []


class DropsTheRest(Lane):
    """A lane that takes a short write for a whole one."""

    __slots__ = ()

    def _finish(self, _wire: bytes, short: list[tuple[int, int]]) -> list[Member]:
        return [self._direct.pop(fd) for fd, _ in short]


class KeepsTheGone(Lane):
    """A lane that does not let go of descriptors."""

    __slots__ = ()

    def discard(self, member: Member) -> None:
        pass


def what_a_viewer_gets(kind: type[Lane]) -> bytes:
    """Of a large frame, and a small one that is due when there is room again, but not for all of the first."""
    end = End()
    lane = lane_of([end], kind)
    lane.send(LARGE)
    found = end.peer.recv(1 << 20)
    lane.send(SMALL)
    found += end.read()
    end.close()
    return found


def test_mistakes_with_short_writes_would_be_seen() -> None:
    """The viewer gets the large frame alone, for it is out of the lane; with a mistake, something else."""
    assert what_a_viewer_gets(Lane) == LARGE.wire
    assert SMALL.wire in what_a_viewer_gets(KeepsTheSlow)[: len(LARGE.wire)]
    assert len(what_a_viewer_gets(DropsTheRest)) < len(LARGE.wire)


def test_a_mistake_with_descriptors_would_be_seen() -> None:
    """A lane that keeps one writes to whoever has it next."""
    for kind, foreign in [(Lane, b""), (KeepsTheGone, SMALL.wire)]:
        gone, lane = End(), kind(Position("e", 1))
        lane.add(gone)
        lane.discard(gone)
        gone.close()
        heirs = [End() for _ in range(3)]
        assert any(gone.fd in {heir.own.fileno(), heir.peer.fileno()} for heir in heirs)
        lane.send(SMALL)
        got = b"".join(heir.read() + heir.read_own() for heir in heirs)
        assert got == foreign
        for heir in heirs:
            heir.close()
