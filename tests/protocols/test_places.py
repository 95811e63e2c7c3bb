"""Which connections get a place, wait for a place or lose it, and which bodies are read. The test sets the clock."""

from types import SimpleNamespace
from typing import Any

import pytest

from live.errors import ProblemError
from live.metrics import REGISTRY
from live.protocols import connection_limits
from live.protocols.connection_limits import GRACE, HEALTH_PLACES, SMALL_BODIES, Admission, ConnectionLimits
from live.protocols.exchange import Connection
from live.system.resources import Resources
from tests.harness.mutation import must_be_caught
from tests.harness.settings import fresh_settings

BYTE = 1 / SMALL_BODIES  # one byte; the tests give sizes of bodies in units of `SMALL_BODIES` bytes

SETTINGS: dict[str, Any] = {
    "idle_timeout": 60, "slow_timeout": 20,
    "max_connections": 6, "max_unanswered": 100 * SMALL_BODIES,
}  # fmt: skip


class Peer(Connection):
    """A connection that writes down what happens to it."""

    received = buffered = unsent = held = wanted = 0

    def __init__(self, address: str) -> None:
        self.network, self.is_shared = address, address == "proxy"
        self.fate: list[str] = []

    def refuse(self, error: Exception) -> None:
        assert isinstance(error, ProblemError)
        self.fate.append(f"{error.code}: {error.detail}")
        assert error.retry_after == (None if error.code == "request_timeout" else 1)

    def report(self) -> None:
        self.fate.append("read")

    def close_idle(self) -> None:
        self.fate.append("idle")

    def abort(self) -> None:
        self.fate.append("aborted")

    def admit_body(self) -> None:
        self.held, self.wanted = self.held + self.wanted, 0
        self.fate.append("admitted")


class Place:
    """Limits with a clock; "proxy" is the address of a proxy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        self.freed = 0
        monkeypatch.setattr(connection_limits, "time", clock)
        monkeypatch.setattr(connection_limits, "return_memory", self._free)
        settings = fresh_settings("", **{**SETTINGS, **changes})
        self.resources = Resources(settings)
        self.limits = ConnectionLimits(settings, self.resources)

    def _free(self) -> None:
        self.freed += 1

    def open(self, address: str, wanted: Admission = Admission.FULL, *, busy: bool = True) -> Peer:
        """Open a connection, and check that it gets the wanted admission."""
        peer = Peer(address)
        assert self.limits.opened(peer) is wanted
        if busy:
            self.limits.busy(peer)
        return peer

    def after(self, seconds: float) -> None:
        """Wait, and check the deadlines."""
        self.now += seconds
        self.limits.sweep(self.now)
        self.limits.sweep_bodies(self.now)

    def send(self, address: str, size: float, *, admitted: bool = True) -> Peer:
        """Begin a body of `size * SMALL_BODIES` bytes on a connection without a place."""
        peer = Peer(address)
        self.begin(peer, size, admitted=admitted)
        return peer

    def begin(self, peer: Peer, size: float, *, admitted: bool = True) -> None:
        """Begin a body as the connection does."""
        peer.wanted = round(size * SMALL_BODIES)
        assert self.limits.admit(peer, peer.wanted) is admitted
        if admitted:
            peer.held, peer.wanted = peer.held + peer.wanted, 0

    def end(self, peer: Peer) -> bool:
        """Answer or withdraw every body of a connection."""
        peer.held = peer.wanted = 0
        return self.limits.update(peer)


def dropped(reason: str) -> float:
    """The number of connections that were dropped for a reason, from the metrics."""
    return REGISTRY.get_sample_value("live_dropped_connections_total", {"reason": reason}) or 0


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """Six places, of which an address may take three."""
    return Place(monkeypatch)


def test_a_place_is_free_again_once_its_connection_is_closed(place: Place) -> None:
    """Closing a connection twice frees its place only once."""
    peers = [place.open(address) for address in "aaabbb"]
    place.open("c", Admission.HEALTH)
    for _ in range(2):
        place.limits.closed(peers[0])
    place.open("c")
    place.open("d", Admission.HEALTH)
    assert set(place.resources.connections.things) == {"a", "b", "c"}
    for peer in peers:
        place.limits.closed(peer)
    places = place.resources.connections
    assert (set(places.things), places.held, place.resources.answers.held) == ({"c"}, 1, 0)


def test_a_closed_connection_has_no_deadline(place: Place) -> None:
    """Nothing happens to a closed connection any more, whether it was receiving, idle or lingering."""
    receiving, idle, lingering = (place.open(address, busy=False) for address in "abc")
    place.limits.busy(idle)
    place.limits.idle(idle)
    assert place.limits.start_lingering(lingering)
    for peer in (receiving, idle, lingering):
        place.limits.closed(peer)
    place.after(99)
    assert receiving.fate == idle.fate == lingering.fate == []


def test_an_address_has_its_own_limit(place: Place) -> None:
    """One more connection is refused, although there is a place for another address."""
    for _ in range(3):
        place.open("a")
    place.open("a", Admission.HEALTH)
    place.open("b")


def test_a_proxy_may_take_all_places(place: Place) -> None:
    """Only the limit of all connections applies to a proxy. At this limit, another client loses an idle connection."""
    for _ in range(5):
        place.open("proxy")
    lone = place.open("a")
    place.open("proxy", Admission.HEALTH)
    place.limits.idle(lone)
    place.open("proxy")
    assert lone.fate == ["idle"]


def test_a_proxy_keeps_its_new_connections(place: Place) -> None:
    """At the limit, a proxy loses a connection whose request has not come for half a second, but no younger one."""
    young = [place.open("proxy", busy=False) for _ in range(6)]
    place.now += GRACE
    place.open("proxy", Admission.HEALTH)
    assert not any(peer.fate for peer in young)
    place.now += 0.01
    place.open("proxy")
    assert [peer.fate for peer in young if peer.fate] == [["aborted"]]


def test_requests_about_health_have_a_few_places(place: Place) -> None:
    """A connection on a place for health is refused if it completes no request within a second.

    A connection that is closed frees its place.
    """
    for _ in range(6):
        place.open("proxy")
    extra = [place.open("x", Admission.HEALTH, busy=False) for _ in range(HEALTH_PLACES)]
    place.open("x", Admission.NONE)
    place.limits.busy(extra[1])
    place.after(1)
    assert all(not peer.fate for peer in extra)
    place.after(0.01)
    assert [len(peer.fate) for peer in extra] == [1, 0] + [1] * (HEALTH_PLACES - 2)
    assert extra[0].fate[0].startswith("too_many_connections: ")
    place.limits.closed(extra[0])
    place.open("x", Admission.HEALTH)
    place.open("x", Admission.NONE)


def test_a_request_has_its_deadline_from_its_first_byte(place: Place) -> None:
    """More bytes do not extend the deadline. The deadline ends when the request is complete."""
    slow, done = place.open("a", busy=False), place.open("a", busy=False)
    place.now += 5
    place.limits.receiving(slow)
    place.limits.busy(done)
    place.after(2.75)
    assert slow.fate == []
    place.after(0.25)
    assert slow.fate == ["request_timeout: a request may take 8 s"]
    place.limits.receiving(done)
    place.after(7.9)
    assert done.fate == []
    place.after(0.2)
    assert len(done.fate) == len(slow.fate) == 1


def test_an_idle_connection_has_its_deadline(place: Place) -> None:
    """A request ends the deadline. A connection whose client still reads an answer is not idle."""
    idle, again, reading = (place.open("a") for _ in range(3))
    reading.unsent = 10
    place.limits.unread(reading)
    for peer in (idle, again, reading):
        place.limits.idle(peer)
    place.after(50)
    place.limits.receiving(again)
    place.limits.busy(again)
    reading.fate.clear()
    place.after(10.1)
    assert (idle.fate, again.fate) == (["idle"], [])
    assert "idle" not in reading.fate
    place.limits.idle(again)
    place.after(59)
    place.limits.receiving(again)
    place.after(2)
    place.limits.busy(again)
    place.after(59)
    assert again.fate == []
    assert place.resources.connections.held == 1


def test_a_connection_lingers_until_its_client_has_read(place: Place) -> None:
    """The client has ten seconds to read the answer."""
    done, reading = place.open("a", busy=False), place.open("b", busy=False)
    reading.unsent = 5
    assert place.limits.start_lingering(done)
    assert place.limits.start_lingering(reading)
    place.after(9.9)
    assert place.limits.start_lingering(done), "the time to read the answer began again"
    assert done.fate == reading.fate == [], "the deadline of an answered request still counts"
    place.after(0.2)
    assert (done.fate, reading.fate) == (["aborted"], [])
    reading.unsent = 0
    place.after(9.9)
    assert reading.fate == []
    place.after(0.2)
    assert reading.fate == ["aborted"]
    assert place.resources.connections.held == 0


def test_a_few_connections_without_a_place_may_linger(place: Place) -> None:
    """Connections with a place may always linger, even with a place for health."""
    kept = [place.open("proxy") for _ in range(6)]
    health = place.open("x", Admission.HEALTH)
    refused = [Peer("x") for _ in range(HEALTH_PLACES)]
    assert all(place.limits.start_lingering(peer) for peer in refused)
    assert not place.limits.start_lingering(Peer("x"))
    assert place.limits.start_lingering(kept[0])
    assert place.limits.start_lingering(health)
    place.limits.closed(refused[0])
    assert place.limits.start_lingering(Peer("x"))


def check_unread_answers(place: Place) -> None:
    """Another client has waited for longest, but has fewer unread bytes than the client with two connections."""
    before = dropped("unread")
    other, first, second, last = (place.open(address) for address in "abbc")
    for peer, size in ((other, 60), (first, 40), (second, 70), (last, 30)):
        peer.unsent = size * SMALL_BODIES
        place.limits.unread(peer)
        place.now += 1
    second.unsent -= 30 * SMALL_BODIES
    place.after(0.1)  # the client has read something on this connection, so its wait begins again
    last.unsent += 30 * SMALL_BODIES
    place.limits.unread(last)
    peers = other, first, second, last
    assert [peer.fate for peer in peers] == [[]] * 4, "a connection was dropped within the budget of unread bytes"
    last.unsent += 1
    place.limits.unread(last)
    assert [peer.fate for peer in peers] == [[], ["aborted"], [], []], "a client lost a connection to another"
    assert dropped("unread") - before == 1
    for peer in peers:
        place.limits.closed(peer)
    assert (place.resources.answers.held, place.resources.connections.held) == (0, 0)


def test_unread_answers_share_a_budget(place: Place) -> None:
    """Beyond the budget, the client with most unread bytes loses its connection that has read nothing for longest."""
    check_unread_answers(place)


@pytest.mark.mutant
def test_dropping_the_slowest_of_all_clients_is_caught(place: Place) -> None:
    """The mutant drops the connection that has read nothing for longest, whoever has it."""
    limits = place.limits

    def drop(_client: str, _asks: int) -> bool:
        limits._drop(min(limits._unread, key=lambda each: limits._unread[each]), "unread")
        return True

    place.resources.answers.lose = drop
    with must_be_caught("a client lost a connection to another"):
        check_unread_answers(place)


def test_a_client_that_does_not_read_is_dropped(place: Place) -> None:
    """A client that has read everything is idle, unless it has begun a request, or its connection lingers."""
    stuck, done, asks, lingers = (place.open(address) for address in "abcd")
    for peer in (stuck, done, asks, lingers):
        peer.unsent = 10
        place.limits.unread(peer)
    place.limits.receiving(asks)
    assert place.limits.start_lingering(lingers)
    for peer in (done, asks, lingers):
        peer.unsent = 0
    place.after(7)
    assert (stuck.fate, done.fate, asks.fate, lingers.fate) == ([], ["read"], [], [])
    place.after(13)
    assert stuck.fate == []
    place.after(0.1)
    assert stuck.fate == ["aborted"]


def test_a_new_connection_replaces_the_longest_idle_one_of_the_largest_client(place: Place) -> None:
    """A connection of a client with fewer connections than the client of the new connection is never closed."""
    lone, *_ = (place.open(address) for address in "bde")
    peers = [place.open("a") for _ in range(3)]
    for peer in (lone, peers[1], peers[0]):
        place.now += 0.01
        place.limits.idle(peer)
    place.open("c")
    assert (peers[1].fate, peers[0].fate, lone.fate) == (["idle"], [], [])
    place.open("c")
    assert (peers[0].fate, lone.fate) == (["idle"], [])
    place.open("a", Admission.HEALTH)
    assert lone.fate == [], "a client with one connection lost it to another such client"


def test_a_client_at_its_own_limit_replaces_its_own(place: Place) -> None:
    """A client at its own limit closes its own idle connection, although there is room for other clients."""
    own = [place.open("a") for _ in range(3)]
    other = place.open("b")
    place.limits.idle(other)
    place.limits.idle(own[2])
    place.open("a")
    assert (own[2].fate, other.fate) == (["idle"], [])


def test_the_slowest_connection_makes_room(place: Place) -> None:
    """After a period of grace, the connection that received the fewest bytes per second is dropped."""
    fast, slow, fresh = (place.open("a", busy=False) for _ in range(3))
    fast.received, slow.received = 1000, 10
    place.now += GRACE
    place.open("a", Admission.HEALTH)
    place.now += 0.1
    place.limits.busy(fresh)
    place.limits.receiving(fresh)
    place.open("a")
    assert (fast.fate, slow.fate, fresh.fate) == ([], ["aborted"], [])
    lingering, stuck = place.open("b"), fast
    assert place.limits.start_lingering(lingering)
    place.limits.busy(stuck)
    stuck.unsent = 1
    place.limits.unread(stuck)
    assert not place.limits._drop_slowest([stuck], is_hasty=False)
    place.now += GRACE
    assert not place.limits._drop_slowest([stuck], is_hasty=False)
    place.now += 0.1
    assert place.limits._drop_slowest([stuck], is_hasty=False)
    assert place.limits._drop_slowest([lingering], is_hasty=False)
    assert (stuck.fate, lingering.fate) == (["aborted"], ["aborted"])


def test_a_client_with_more_than_twice_as_many_gets_no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with exactly twice as many connections gets the grace."""
    for many, wanted in ((2, Admission.HEALTH), (3, Admission.FULL)):
        place = Place(monkeypatch, max_connections=2 * many)
        peers = [place.open("a", busy=False) for _ in range(many)]
        for number in range(many):
            place.open(f"c{number}")
        place.now += 0.01
        place.open("b", wanted)
        assert sum(len(peer.fate) for peer in peers) == (wanted is Admission.FULL)


class Counted(Peer):
    """A connection that counts how often such connections are looked up."""

    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return id(self)


def test_a_new_connection_costs_the_same_however_many_clients_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many clients with two busy connections, and more with an idle one, which makes room."""

    def lookups(clients: int) -> int:
        place = Place(monkeypatch, max_connections=4 * clients)
        idle = []
        for number in range(2 * clients):
            for address, is_idle in ((f"busy {number % clients}", False), (f"idle {number}", True)):
                peer = Counted(address)
                assert place.limits.opened(peer) is Admission.FULL
                place.limits.busy(peer)
                if is_idle:
                    idle.append(peer)
                    place.limits.idle(peer)
        before = Counted.lookups
        assert place.limits.opened(Counted("new")) is Admission.FULL
        assert [peer.fate for peer in idle[:2]] == [["idle"], []]
        return Counted.lookups - before

    assert lookups(400) < 2 * lookups(100)


def test_each_new_connection_looks_at_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow connection makes room, whichever of many clients has it."""
    place = Place(monkeypatch, max_connections=80)
    for number in range(79):
        place.open(f"busy {number // 2}")
    slow = place.open("busy 39", busy=False)
    place.now += 2 * GRACE
    place.open("new", Admission.HEALTH)
    place.open("new")
    assert slow.fate == ["aborted"]


def test_bodies_fit_into_a_budget(place: Place) -> None:
    """A client may hold half of the budget.

    The next body waits until a body is answered. There is always room for one body.
    """
    lone = place.send("a", 1000)
    assert not place.end(lone)
    first, second = place.send("a", 50), place.send("b", 50)
    waits = place.send("c", 1, admitted=False)
    assert place.limits.update(waits)
    assert waits.fate == []
    assert not place.end(first)
    assert (waits.fate, waits.held) == (["admitted"], SMALL_BODIES)
    assert not place.limits.update(waits), "a small body uses up the budget"
    place.end(waits)
    place.end(place.send("c", 50 + BYTE, admitted=False))
    place.end(place.send("c", 50))
    assert not place.end(second)
    assert (place.resources.bodies.held, place.resources.bodies.things) == (0, {})


def test_a_client_holds_half_of_the_budget(place: Place) -> None:
    """A proxy may hold the whole budget."""
    place.send("a", 40)
    place.send("a", 10 + BYTE, admitted=False)
    place.send("a", 10)
    place.send("proxy", 30)
    place.send("proxy", 20)
    place.send("proxy", 2, admitted=False)


def test_a_connection_counts_its_bodies_together(place: Place) -> None:
    """Small bodies of a connection count once they are large together."""
    peer = Peer("a")
    place.begin(peer, 1)
    assert place.resources.bodies.held == 0
    place.begin(peer, 1)
    assert place.resources.bodies.held == 2 * SMALL_BODIES
    place.begin(peer, 48)
    assert place.resources.bodies.held == 50 * SMALL_BODIES
    place.begin(peer, 1, admitted=False)
    peer.wanted = 0  # the client has left
    assert place.limits.update(peer), "the body of a departed client is free too early"
    assert peer.fate == [], "a body that was withdrawn was admitted"
    assert not place.end(peer)
    assert (place.resources.bodies.held, place.limits._since) == (0, {})


def test_the_client_that_holds_least_goes_first(place: Place) -> None:
    """Of clients that hold equally much, the client that waits longest goes first.

    A client whose body would exceed its half of the budget is passed over.
    """
    large = place.send("a", 50)
    place.send("b", 48)
    more = place.send("b", 2)
    waits = []
    for address in ("b", "c", "d"):
        place.now += 0.1
        waits.append(place.send(address, 20, admitted=False))
    late = place.send("e", 1, admitted=False)
    place.end(large)
    assert [peer.fate for peer in waits] == [[], ["admitted"], ["admitted"]]
    assert late.fate == ["admitted"]
    place.end(more)
    assert waits[0].fate == []


def test_a_body_that_waits_for_too_long_is_refused(place: Place) -> None:
    """A body is also refused if too many bodies wait already."""
    place.send("a", 50)
    place.send("b", 50)
    waits = place.send("c", 50, admitted=False)
    place.after(7.9)
    assert waits.fate == []
    place.after(0.2)
    (refusal,) = waits.fate
    assert refusal == (
        f"overloaded: bodies of {100 * SMALL_BODIES:,} bytes are not answered; "
        f"the setting max_unanswered allows {100 * SMALL_BODIES:,}"
    )


def test_as_many_bodies_wait_as_the_budget_has_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only half of the reads that fit into the budget may belong to one client.

    For the body of another client, the client with the most waiting bodies loses its newest, if it still has as many as
    the other client then.
    """
    place = Place(monkeypatch, max_unanswered=96 * SMALL_BODIES)
    place.send("x", 48)
    place.send("y", 48)
    # The budget is 96 bodies of 16 KiB, or 6 reads of 256 KiB.
    own = [place.send("a", 2, admitted=False) for _ in range(3)]
    with pytest.raises(ProblemError, match="not answered"):
        place.limits.admit(Peer("a"), 2 * SMALL_BODIES)
    others = [place.send(address, 2, admitted=False) for address in "bcdef"]
    assert [len(peer.fate) for peer in (*own, *others)] == [0, 1, 1, 0, 0, 0, 0, 0]
    assert own[2].fate[0].startswith("overloaded: ")
    with pytest.raises(ProblemError, match="not answered") as refused:
        place.limits.admit(Peer("g"), 2 * SMALL_BODIES)
    assert (refused.value.code, refused.value.retry_after) == ("overloaded", 1)


def test_a_slow_body_loses_its_connection_to_one_that_waits(place: Place) -> None:
    """The client of the slow body holds more than the waiting client.

    If the client of the slow body holds at most twice as much, this body has a period of grace.
    """
    for few, is_dropped in ((10, True), (25, False)):
        slow, other = place.send("a", 50), place.send("b", few)
        third = place.send("c", 50 - few)
        place.limits.opened(slow)
        place.now += 0.1
        place.send("b", 1 + few // 2, admitted=False)
        assert (slow.fate == ["aborted"]) is is_dropped, few
        place.after(GRACE)
        assert slow.fate == ["aborted"]
        for peer in (slow, other, third, *place.limits._since):
            place.limits.closed(peer)
            place.end(peer)  # type: ignore[arg-type]
        assert place.resources.bodies.held == 0


def test_the_memory_of_a_lot_of_bodies_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is returned once, five seconds after the last body is answered."""
    place = Place(monkeypatch, max_unanswered=64 * 1024**2)
    lot = place.send("a", 1024)
    place.after(1)
    place.end(lot)
    place.after(6)
    assert place.freed == 0, "memory was returned after only 16 MiB of bodies"
    lot = place.send("a", 1025)
    place.after(6)
    assert place.freed == 0
    place.end(lot)
    place.after(5)
    assert place.freed == 0
    place.after(0.1)
    place.after(60)
    assert place.freed == 1
