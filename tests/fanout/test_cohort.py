"""Cohorts over real sockets: a viewer that can't take a whole frame leaves the cohort, and gets the rest later."""

from collections.abc import Iterator
from contextlib import suppress
from socket import SO_SNDBUF, SOL_SOCKET, socketpair
from typing import Any, cast

import pytest

from live.fanout import cohort as delivery
from live.fanout.cohort import BoardStatus, Cohort, Encoding, Sink, Subscribers, Viewer, ViewerPosition
from live.fanout.frames import Frame

SMALL, LARGE = Frame("update", b'{"n":1}'), Frame("sync", bytes(range(256)) * 2000)


class End(Viewer):
    """A viewer and its connection: `own` is the server's side, `peer` the viewer's."""

    encoding: Encoding = "plain"
    waiting = False
    blocked_since: float | None = None

    def __init__(self, *, direct: bool = True) -> None:
        super().__init__(cast("Any", None), Subscribers(BoardStatus()), ViewerPosition(), cast("Sink", self))
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

    def end(self, _code: int) -> None:
        pass

    def join(self, cohort: Cohort) -> None:
        cohort.add(self)

    def fall_out(self, _position: ViewerPosition) -> None:
        pass

    def read(self) -> bytes:
        """Return everything that the viewer receives."""
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
        """Bytes that arrived at the server's side."""
        with suppress(BlockingIOError):
            return self.own.recv(1 << 20)
        return b""

    def fill(self) -> int:
        """Fill the send buffer; returns the number of bytes."""
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


def cohort_of(ends: list[End], kind: type[Cohort] = Cohort) -> Cohort:
    """A cohort of these viewers."""
    cohort = kind(ViewerPosition("e", 1))
    for end in ends:
        cohort.add(end)
    return cohort


def test_all_members_receive_the_same_bytes(ends: list[End]) -> None:
    """The cohort writes to the socket, or through the connection if there is no file descriptor."""
    ends.append(End(direct=False))
    cohort = cohort_of(ends)
    assert cohort.send(SMALL.wire) == []
    assert cohort.send(SMALL.wire) == []
    assert [end.read() for end in ends] == [SMALL.wire * 2] * 4
    assert len(cohort) == 4


def test_a_frame_that_does_not_fit_is_completed(ends: list[End]) -> None:
    """The rest of the frame goes through the connection, and the viewer leaves the cohort until the rest is sent."""
    cohort = cohort_of(ends)
    assert cohort.send(LARGE.wire) == ends
    assert len(cohort) == 0
    assert cohort.send(SMALL.wire) == []
    assert [end.read() for end in ends] == [LARGE.wire] * 3


def test_only_slow_members_leave(ends: list[End]) -> None:
    """A viewer that reads nothing delays no one, and receives the frame after its unread bytes."""
    cohort = cohort_of(ends)
    before = ends[1].fill()
    assert cohort.send(SMALL.wire) == [ends[1]]
    assert len(cohort) == 2
    assert cohort.send(SMALL.wire) == []
    assert [end.read() for end in ends] == [SMALL.wire * 2, b"." * before + SMALL.wire, SMALL.wire * 2]


class Quick(End):
    """A viewer whose connection accepts the rest immediately, because its client has read something in between."""

    def write(self, data: bytes | memoryview) -> bool:
        self.consumed = self.peer.recv(1 << 20)
        return super().write(data)


def test_a_member_that_accepts_the_rest_stays() -> None:
    """The viewer stays in the cohort, and receives the next frames with it."""
    end = Quick()
    cohort = cohort_of([end])
    before = end.fill()
    assert cohort.send(SMALL.wire) == []
    assert len(cohort) == 1
    assert end.consumed + end.read() == b"." * before + SMALL.wire
    end.close()


def test_broken_connections_are_aborted(ends: list[End]) -> None:
    """Broken connections leave the cohort. All other viewers receive every frame."""
    cohort = cohort_of(ends)
    ends[0].peer.close()
    ends[2].own.close()
    assert cohort.send(SMALL.wire) == []
    assert [end.aborted for end in ends] == [True, False, True]
    assert len(cohort) == 1
    assert ends[1].read() == SMALL.wire


@pytest.mark.parametrize("direct", [True, False])
def test_a_discarded_member_receives_nothing(*, direct: bool) -> None:
    """A new connection with the same file descriptor receives nothing either. Discarding twice is allowed."""
    gone, cohort = End(direct=direct), Cohort(ViewerPosition("e", 1))
    cohort.add(gone)
    cohort.discard(gone)
    cohort.discard(gone)
    gone.close()
    heir = End(direct=direct)
    assert cohort.send(SMALL.wire) == []
    assert (heir.read(), len(cohort)) == (b"", 0)
    heir.close()


class KeepsTheSlow(Cohort):
    """A wrong cohort: it forwards the rest of a frame, but keeps the slow viewer."""

    def _finish(self, wire: bytes, short: list[tuple[int, int]]) -> list[Viewer]:
        for fd, sent in short:
            self._direct[fd].sink.write(wire[sent:])
        return []


class DropsTheRest(Cohort):
    """A wrong cohort: it takes a short write for a complete write."""

    def _finish(self, _wire: bytes, short: list[tuple[int, int]]) -> list[Viewer]:
        return [self._direct.pop(fd) for fd, _ in short]


class KeepsTheGone(Cohort):
    """A wrong cohort: it keeps the file descriptors of closed connections."""

    def discard(self, member: Viewer) -> None:
        pass


def received_by(kind: type[Cohort]) -> bytes:
    """Return what a viewer receives if its buffer has room for a part of a large frame, and a small frame follows."""
    end = End()
    cohort = cohort_of([end], kind)
    cohort.send(LARGE.wire)
    found = end.peer.recv(1 << 20)
    cohort.send(SMALL.wire)
    found += end.read()
    end.close()
    return found


def test_errors_with_short_writes_are_detected() -> None:
    """The viewer must receive the large frame alone, because it has left the cohort. The mutants send more, or less."""
    assert received_by(Cohort) == LARGE.wire
    assert SMALL.wire in received_by(KeepsTheSlow)[: len(LARGE.wire)]
    assert len(received_by(DropsTheRest)) < len(LARGE.wire)


@pytest.mark.slow
def test_errors_with_file_descriptors_are_detected() -> None:
    """A cohort that keeps a closed descriptor writes to the next connection that uses it."""
    for kind, foreign in [(Cohort, b""), (KeepsTheGone, SMALL.wire)]:
        gone, cohort = End(), kind(ViewerPosition("e", 1))
        cohort.add(gone)
        cohort.discard(gone)
        gone.close()
        heirs = [End() for _ in range(3)]
        assert any(gone.fd in {heir.own.fileno(), heir.peer.fileno()} for heir in heirs)
        cohort.send(SMALL.wire)
        got = b"".join(heir.read() + heir.read_own() for heir in heirs)
        assert got == foreign
        for heir in heirs:
            heir.close()


def test_cohorts_in_the_same_state_are_joined_as_long_as_they_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full cohort stays as it is. Other cohorts are merged into one that has room. Empty cohorts are removed."""
    monkeypatch.setattr(delivery, "MOST", 4)
    for sizes, expected in (
        ([2, 2], [4]), ([2, 3], [2, 3]), ([1, 0], [1]), ([0], []), ([3], [3]), ([3, 2, 2], [3, 4]), ([2, 3, 2], [4, 3]),
        ([1, 1], [2]),
    ):  # fmt: skip
        group = Subscribers(BoardStatus())
        others = [End(direct=number % 2 == 0) for number in range(sum(sizes))]
        rest = iter(others)
        group.cohorts = [cohort_of([next(rest) for _ in range(size)]) for size in sizes]
        apart = Cohort(ViewerPosition("e", 2))
        if sum(sizes) > 2:
            apart.add(others[0])
            group.cohorts.append(apart)
        group.merge_cohorts()
        assert [len(cohort) for cohort in group.cohorts if cohort is not apart] == expected, sizes
        for end in others:
            end.close()


def test_a_cohort_is_full_at_its_limit(monkeypatch: pytest.MonkeyPatch, ends: list[End]) -> None:
    """The next viewer at the same position begins a new cohort. So does a viewer at another position."""
    monkeypatch.setattr(delivery, "MOST", 2)
    group = Subscribers(BoardStatus())
    for end in ends:
        group.cohort_at(ViewerPosition("e", 1)).add(end)
    assert [len(cohort) for cohort in group.cohorts] == [2, 1]
    assert len(group.cohort_at(ViewerPosition("e", 2))) == 0
    assert [position.offset for position in group.positions] == [1, 1, 2]
