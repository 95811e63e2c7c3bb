"""The reaper of viewers: when it checks, pings and disconnects viewers. The test sets the clock."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from live.errors import SLOW
from live.fanout.hub import Hub
from live.metrics import REGISTRY
from live.protocols import websocket
from live.protocols.websocket import ViewerReaper


class Socket:
    """A viewer's connection that writes down what happens to it."""

    def __init__(self, viewer: Any = None) -> None:
        self.viewer = viewer
        self.slot = 0
        self.blocked_since: float | None = None
        self.progress = False
        self.fate: list[object] = []

    def ping(self) -> None:
        self.fate.append("ping")

    def check(self) -> None:
        self.fate.append("check")

    def has_progressed(self) -> bool:
        return self.progress

    def close(self, code: int, patience: float) -> None:
        self.fate.append((code, patience))


def new_socket(viewer: Any = None) -> Any:
    """A `Socket` as the reaper takes it."""
    return Socket(viewer)


class Viewers:
    """A hub that notes who leaves."""

    def __init__(self) -> None:
        self.viewers = 0
        self.left: list[object] = []

    def leave(self, viewer: object) -> None:
        self.left.append(viewer)


def reaper_of(hub: Viewers) -> tuple[ViewerReaper, set[object]]:
    """A reaper that disconnects after ten seconds, and the connections of its server."""
    reaper, connections = ViewerReaper(cast("Hub", hub), 10.0), set[object]()
    reaper.connections = connections
    return reaper, connections


def test_a_viewer_is_checked_once_in_twenty_seconds() -> None:
    """The reaper pings a viewer in one of three rounds, and leaves alone a viewer that is gone."""
    reaper, connections = reaper_of(Viewers())
    socket, gone, later = new_socket(), new_socket(), new_socket()
    for each in (socket, gone):
        reaper.add(each)
    assert connections == {socket, gone}
    reaper.discard(gone)
    assert connections == {socket}
    seen: dict[Socket, list[tuple[object, ...]]] = {socket: [], later: []}
    for second in range(1, 121):
        reaper.sweep()
        for each, fates in seen.items():
            if each.fate:
                fates.append((second, *each.fate))
                each.fate.clear()
        if second == 6:
            reaper.add(later)
    whats = ["ping", "check", "check"] * 2
    assert seen[socket] == list(zip((19, 39, 59, 79, 99, 119), whats, strict=True))
    assert seen[later] == list(zip((25, 45, 65, 85, 105), whats[1:], strict=True))
    assert gone.fate == []


def test_a_viewer_that_is_gone_leaves_the_hub() -> None:
    """A viewer whose subscription was refused was never in the hub."""
    hub = Viewers()
    reaper, _ = reaper_of(hub)
    for viewer in ("viewer", None):
        socket = new_socket(viewer)
        reaper.add(socket)
        reaper.discard(socket)
    assert hub.left == ["viewer"]


def test_a_viewer_without_progress_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte that the viewer acknowledges starts the viewer's time for progress again."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(websocket, "time", SimpleNamespace(monotonic=lambda: clock.now))
    reaper, _ = reaper_of(Viewers())
    stuck, slow, free, over, gone = (new_socket() for _ in range(5))
    for socket in (stuck, slow, free, over, gone):
        reaper.waiting.add(socket)
        socket.blocked_since = 100.0
    slow.progress, free.blocked_since = True, None
    reaper.waiting.discard(over)
    reaper.discard(gone)
    before = REGISTRY.get_sample_value("live_dropped_viewers_total", {"reason": "slow"}) or 0
    clock.now = 109.9
    reaper.sweep()
    assert stuck.fate == []
    clock.now = 110.0
    for _ in range(2):
        reaper.sweep()
    assert [socket.fate for socket in (stuck, slow, free, over, gone)] == [[(SLOW, 1.0)], [], [], [], []]
    assert (REGISTRY.get_sample_value("live_dropped_viewers_total", {"reason": "slow"}) or 0) - before == 1
    assert slow.blocked_since == 110.0
    slow.progress, clock.now = False, 120.0
    reaper.sweep()
    assert slow.fate == [(SLOW, 1.0)]


def test_reconnects_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """About five hundred viewers come back in each second, or more if the last would wait for over half a minute."""
    hub = Viewers()
    reaper, _ = reaper_of(hub)
    uniform = Mock(side_effect=lambda _, longest: longest)
    monkeypatch.setattr(websocket, "random", SimpleNamespace(uniform=uniform))
    found = []
    for hub.viewers in (0, 500, 617, 10**6):
        found.append(reaper.retry_after())
    assert found == [1.0, 2.0, 2.23, 30.0]
    assert [call.args[0] for call in uniform.call_args_list] == [0.1] * 4
