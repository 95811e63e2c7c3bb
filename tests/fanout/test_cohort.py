"""Cohorts over real sockets: every byte of every frame, or a viewer that is out of the cohort."""

from collections.abc import Iterator
from contextlib import suppress
from socket import SO_SNDBUF, SOL_SOCKET, socketpair

import pytest

from live.fanout.cohort import Cohort, Member
from live.fanout.frames import Frame
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


def lane_of(ends: list[End], kind: type[Cohort] = Cohort) -> Cohort:
    """A cohort of these."""
    cohort = kind(Position("e", 1))
    for end in ends:
        cohort.add(end)
    return cohort


def test_all_get_the_same_bytes(ends: list[End]) -> None:
    """Directly, and through the connection where there is no descriptor."""
    ends.append(End(direct=False))
    cohort = lane_of(ends)
    assert cohort.send(SMALL) == []
    assert cohort.send(SMALL) == []
    assert [end.read() for end in ends] == [SMALL.wire * 2] * 4
    assert len(cohort) == 4


def test_a_frame_that_does_not_fit_is_sent_to_its_end(ends: list[End]) -> None:
    """What is left goes through the connection, and the viewer leaves the cohort until that is done."""
    cohort = lane_of(ends)
    assert cohort.send(LARGE) == ends
    assert len(cohort) == 0
    assert cohort.send(SMALL) == []
    assert [end.read() for end in ends] == [LARGE.wire] * 3


def test_only_who_is_behind_leaves(ends: list[End]) -> None:
    """One that takes nothing holds nobody up, and gets the frame behind what waits."""
    cohort = lane_of(ends)
    before = ends[1].fill()
    assert cohort.send(SMALL) == [ends[1]]
    assert len(cohort) == 2
    assert cohort.send(SMALL) == []
    assert [end.read() for end in ends] == [SMALL.wire * 2, b"." * before + SMALL.wire, SMALL.wire * 2]


class Quick(End):
    """One whose connection takes the rest at once: it was read in between."""

    def write(self, data: bytes | memoryview) -> bool:
        self.taken = self.peer.recv(1 << 20)
        return super().write(data)


def test_who_takes_the_rest_at_once_stays() -> None:
    """The cohort goes on with it."""
    end = Quick()
    cohort = lane_of([end])
    before = end.fill()
    assert cohort.send(SMALL) == []
    assert len(cohort) == 1
    assert end.taken + end.read() == b"." * before + SMALL.wire
    end.close()


def test_the_broken_are_aborted(ends: list[End]) -> None:
    """A viewer that has gone is no member any more; the others get every frame."""
    cohort = lane_of(ends)
    ends[0].peer.close()
    ends[2].own.close()
    assert cohort.send(SMALL) == []
    assert [end.aborted for end in ends] == [True, False, True]
    assert len(cohort) == 1
    assert ends[1].read() == SMALL.wire


@pytest.mark.parametrize("direct", [True, False])
def test_who_leaves_gets_nothing(*, direct: bool) -> None:
    """Nor does whoever has its descriptor after it; leaving twice is leaving."""
    gone, cohort = End(direct=direct), Cohort(Position("e", 1))
    cohort.add(gone)
    cohort.discard(gone)
    cohort.discard(gone)
    gone.close()
    heir = End(direct=direct)
    assert cohort.send(SMALL) == []
    assert (heir.read(), len(cohort)) == (b"", 0)
    heir.close()


class KeepsTheSlow(Cohort):
    """A cohort as one would write it first: what does not fit is handed on, and the viewer stays."""

    __slots__ = ()

    def _finish(self, wire: bytes, short: list[tuple[int, int]]) -> list[Member]:
        for fd, sent in short:
            self._direct[fd].write(wire[sent:])
        return []


class DropsTheRest(Cohort):
    """A cohort that takes a short write for a whole one."""

    __slots__ = ()

    def _finish(self, _wire: bytes, short: list[tuple[int, int]]) -> list[Member]:
        return [self._direct.pop(fd) for fd, _ in short]


class KeepsTheGone(Cohort):
    """A cohort that does not let go of descriptors."""

    __slots__ = ()

    def discard(self, member: Member) -> None:
        pass


def what_a_viewer_gets(kind: type[Cohort]) -> bytes:
    """Of a large frame, and a small one that is due when there is room again, but not for all of the first."""
    end = End()
    cohort = lane_of([end], kind)
    cohort.send(LARGE)
    found = end.peer.recv(1 << 20)
    cohort.send(SMALL)
    found += end.read()
    end.close()
    return found


def test_mistakes_with_short_writes_would_be_seen() -> None:
    """The viewer gets the large frame alone, for it is out of the cohort; with a mistake, something else."""
    assert what_a_viewer_gets(Cohort) == LARGE.wire
    assert SMALL.wire in what_a_viewer_gets(KeepsTheSlow)[: len(LARGE.wire)]
    assert len(what_a_viewer_gets(DropsTheRest)) < len(LARGE.wire)


def test_a_mistake_with_descriptors_would_be_seen() -> None:
    """A cohort that keeps one writes to whoever has it next."""
    for kind, foreign in [(Cohort, b""), (KeepsTheGone, SMALL.wire)]:
        gone, cohort = End(), kind(Position("e", 1))
        cohort.add(gone)
        cohort.discard(gone)
        gone.close()
        heirs = [End() for _ in range(3)]
        assert any(gone.fd in {heir.own.fileno(), heir.peer.fileno()} for heir in heirs)
        cohort.send(SMALL)
        got = b"".join(heir.read() + heir.read_own() for heir in heirs)
        assert got == foreign
        for heir in heirs:
            heir.close()
