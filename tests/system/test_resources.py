"""Resources: nobody holds more than half of a resource, and no client waits for more than one request of another."""

import asyncio
import time
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live.errors import ProblemError
from live.system import resources
from live.system.resources import Resource, Turns, _TimedWork
from tests.harness.mutation import must_be_caught, replaced

GREEDY, MODEST = "greedy", "modest"


def holding(most: int, *, grain: int = 1, **amounts: int) -> Resource[str]:
    """A resource of which each client holds one thing. A client loses it if it would not be left with the least."""
    resource = Resource[str](most, grain=grain)

    def lose(client: str, asks: int) -> bool:
        if resource.of(client) < asks:
            return False
        for thing in list(resource.things[client]):
            resource.set(client, thing, 0)
        return True

    resource.lose = lose
    for client, amount in amounts.items():
        resource.set(client, "thing", amount)
    return resource


def test_nobody_holds_more_than_half() -> None:
    """Whoever holds nothing may hold one thing, however large it is."""
    places = Resource[str](10)
    for thing in "12345":
        assert places.is_within_half("a")
        assert places.make_room("a")
        places.set("a", thing, 1)
    assert not places.is_within_half("a")
    assert not places.make_room("a")
    assert places.make_room("a", is_shared=True)
    assert places.make_room("b")
    places.set("a", "3", 0)
    assert places.is_within_half("a")
    assert Resource[str](1).is_within_half("a")
    assert Resource[str](100).is_within_half("a", 1000)


def test_a_resource_is_used_up() -> None:
    """The first thing always has room, unless there is no room at all."""
    assert holding(3).has_room(1000)
    places = holding(3, a=2)
    assert (places.has_room(), places.has_room(2)) == (True, False)
    places.set("b", "thing", 1)
    assert not places.has_room()
    assert not Resource[str](0).has_room()


def test_the_client_that_holds_most_loses_to_one_that_holds_less() -> None:
    """A client that holds as much as the client that asks loses nothing. An address of many clients asks as the first.

    If the client that holds most loses nothing, the next one does.
    """
    places = holding(10, a=5, b=4, c=1)
    assert places.make_room("c", 2)
    assert (places.of("a"), places.of("b"), places.of("c"), places.held) == (0, 4, 1, 5)
    assert not holding(12, a=5, b=5, c=2).make_room("b")
    shared = holding(10, a=5, b=5)
    assert not shared.make_room("b")
    assert shared.make_room("b", is_shared=True)
    assert (shared.of("a"), shared.of("b")) == (0, 5)
    stubborn = holding(10, a=6, b=4)
    lose, stubborn.lose = stubborn.lose, lambda client, asks: client != "a" and lose(client, asks)
    assert stubborn.make_room("c", 3)
    assert (stubborn.of("a"), stubborn.of("b")) == (6, 0)
    late = holding(10, a=6, b=4)
    late.lose = lambda *_: True  # the room is free later
    assert not late.make_room("c")


def test_the_clients_that_hold_most_are_found() -> None:
    """Of clients that hold equally much, each call begins with another."""
    places = holding(100, a=1, b=3, c=2, d=3)
    assert list(places._largest(1)) == ["b", "d", "c"]
    assert [next(places._largest(0)) for _ in range(3)] == ["b", "d", "b"]
    places.set("b", "thing", 0)
    assert list(places._largest(2)) == ["d"]
    assert (places.held, places.of("b"), places.of("d"), places.size_of("d", "thing")) == (6, 0, 3, 3)
    grains = holding(1000, grain=10, a=11, b=19, c=5)
    assert list(grains._largest(5)) == ["a", "b"]
    assert list(grains._largest(11)) == ["b"]


def test_other_things_of_a_client_are_found_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow thing is found, whichever of many things it is."""
    monkeypatch.setattr(resources, "_LOOK_AT", 2)
    places = Resource[str](10)
    for thing in "abcde":
        places.set("client", thing, 1)
    assert [places.some_of("client") for _ in range(3)] == [["a", "b"], ["c", "d"], ["e", "a"]]


AMOUNTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 40)), max_size=40)


@settings(deadline=None)
@given(grain=st.integers(1, 16), steps=AMOUNTS)
def test_what_clients_hold_is_the_sum_of_their_things(grain: int, steps: list[tuple[str, str, int]]) -> None:
    """A client that holds nothing leaves nothing behind."""
    places, sizes = Resource[str](100, grain=grain), dict[tuple[str, str], int]()
    for client, thing, amount in steps:
        places.set(client, thing, amount)
        sizes[client, thing] = amount
    of = {client: sum(size for (owner, _), size in sizes.items() if owner == client) for client in "abc"}
    assert (places.held, {client: places.of(client) for client in "abc"}) == (sum(of.values()), of)
    assert set(places.things) == set(places._largest(0)) == {client for client, amount in of.items() if amount}
    assert sum(map(len, places._alike.values())) == len(places.things)


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def crowd(queue: Turns, client: str, requests: int, served: list[str]) -> list[asyncio.Task[None]]:
    """Let a client ask for some turns at once. Each turn is noted when it begins."""

    async def ask() -> None:
        await queue.enter(client)
        served.append(client)

    tasks = [asyncio.create_task(ask()) for _ in range(requests)]
    await settled()
    return tasks


async def cancelled(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel requests."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_clients_take_turns() -> None:
    """One client has many requests, and another client has a single request."""
    queue, served = Turns(1, 100), list[str]()
    tasks = await crowd(queue, GREEDY, 50, served)
    tasks += await crowd(queue, MODEST, 1, served)
    assert served == [GREEDY]
    for _ in range(2):
        queue.leave(served[-1])
        await settled()
    assert MODEST in served, f"the modest client still waits: {Counter(served)}"
    await cancelled(tasks)


async def test_a_client_has_one_turn_at_a_time() -> None:
    """A queue of two turns serves two clients at once, and never one client twice."""
    queue, served = Turns(2, 100), list[str]()
    tasks = await crowd(queue, GREEDY, 3, served)
    assert served == [GREEDY]
    tasks += await crowd(queue, MODEST, 1, served)
    assert served == [GREEDY, MODEST]
    await cancelled(tasks)


async def test_the_greediest_client_loses_a_request_when_the_queue_is_full() -> None:
    """Another client still finds room, until both have the same share."""
    queue, served = Turns(1, 8), list[str]()
    tasks = await crowd(queue, GREEDY, 20, served)
    refused = [task for task in tasks if task.done() and task.exception() is not None]
    assert len(refused) == 20 - 1 - 4, "a client holds more than half of the places"
    second = await crowd(queue, "second", 20, served)
    others = await crowd(queue, MODEST, 2, served)
    errors = [task.exception() for task in (*tasks, *second, *others) if task.done()]
    assert {error.code for error in errors if isinstance(error, ProblemError)} == {"overloaded"}
    assert sum(not task.done() for task in others) == 2, "the modest client found no room"
    await cancelled([*tasks, *second, *others])


async def test_a_request_that_leaves_the_queue_takes_no_turn() -> None:
    """The next request is served, whether the cancelled request waited or had just got its turn."""
    queue, served = Turns(1, 100), list[str]()
    tasks = await crowd(queue, GREEDY, 1, served)
    gone = await crowd(queue, "gone", 2, served)
    tasks += await crowd(queue, MODEST, 1, served)
    gone[1].cancel()
    queue.leave(GREEDY)  # the first request of the client "gone" gets the turn
    gone[0].cancel()
    await settled()
    assert served == [GREEDY, MODEST]
    await cancelled([*tasks, *gone])


STEPS = st.lists(st.tuples(st.sampled_from(["enter", "leave", "cancel"]), st.integers(0, 5)), max_size=60)


@settings(deadline=None)
@given(at_once=st.integers(1, 3), most=st.integers(1, 6), steps=STEPS)
def test_no_turn_is_lost(at_once: int, most: int, steps: list[tuple[str, int]]) -> None:
    """After any steps, a turn is free only if no client without a turn waits for a turn."""

    async def run() -> None:
        queue = Turns(at_once, most)
        tasks: dict[asyncio.Task[None], str] = {}

        def having() -> list[asyncio.Task[None]]:
            return [each for each in tasks if each.done() and not each.cancelled() and each.exception() is None]

        for step, number in steps:
            if step == "enter":
                task = asyncio.create_task(queue.enter(f"c{number}"))
                tasks[task] = f"c{number}"
            elif step == "leave" and (served := having()):
                task = served[number % len(served)]
                queue.leave(tasks.pop(task))
            elif step == "cancel" and (waiting := [each for each in tasks if not each.done()]):
                waiting[number % len(waiting)].cancel()
            if number % 2:  # after even numbers, the next step happens before any task runs
                await settled()
        await settled()
        clients = [tasks[task] for task in having()]
        waits = {tasks[task] for task in tasks if not task.done()}
        assert len(clients) <= at_once
        assert len(set(clients)) == len(clients)
        assert len(clients) == at_once or waits <= set(clients), "a turn is free, and a client without a turn waits"
        assert sum(not task.done() for task in tasks) <= most
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, ProblemError):
                await task

    asyncio.run(run())


SPENT = 0.05  # seconds on the processor


def spend(seconds: float) -> float:
    """Use the processor, and return for how long."""
    began = time.thread_time()
    while (spent := time.thread_time() - began) < seconds:
        pass
    return spent


async def rest_after(work_spends: float, others_spend: float) -> float:
    """Return how long a turn goes on after its work, while other tasks use the processor in the middle of the work."""
    turns, loop = Turns(1, 10), asyncio.get_running_loop()

    async def work() -> float:
        spend(work_spends / 2)
        await asyncio.sleep(0)  # the other task has its time now
        spend(work_spends / 2)
        return loop.time()

    async def other() -> None:
        spend(others_spend)

    beside = asyncio.create_task(other())
    ended = await turns.share("a", work())
    await turns.enter("b")
    rest = loop.time() - ended
    await beside
    return rest


async def check_the_rest() -> None:
    """The rest is as long as the work took, although other tasks took eight times as long meanwhile."""
    rest = min([await rest_after(SPENT, 8 * SPENT) for _ in range(3)])
    assert 0.9 * SPENT < rest < 4 * SPENT, f"after {SPENT} s of work, the turn ended {rest:.2f} s later"


async def test_a_turn_rests_for_as_long_as_its_own_work_took() -> None:
    """The time of other work on the loop does not count as the client's."""
    await check_the_rest()


@pytest.mark.mutant
async def test_counting_other_work_is_caught() -> None:
    """The mutant takes all time of the thread between the begin and the end of the work."""

    async def all_of_it(self: _TimedWork[float]) -> float:
        began = time.thread_time()
        result = await self._work
        self.spent = time.thread_time() - began
        return result

    with (
        replaced(_TimedWork, "__await__", lambda self: all_of_it(self).__await__()),
        must_be_caught("the turn ended"),
    ):
        await check_the_rest()


async def test_shared_work_that_fails_or_is_cancelled_ends_its_turn() -> None:
    """Work that never gets a turn does not begin."""
    turns, begun = Turns(1, 2), list[str]()

    async def work(name: str) -> None:
        begun.append(name)
        await asyncio.sleep(0)
        if name == "fails":
            raise ValueError(name)
        await asyncio.sleep(60)

    with pytest.raises(ValueError, match="fails"):
        await turns.share("a", work("fails"))
    first = asyncio.create_task(turns.share("a", work("first")))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(turns.share("b", work("second")))
    await settled()
    with pytest.raises(ProblemError, match="overloaded"):
        await turns.share("b", work("refused"))
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    await turns.enter("c")
    assert (begun, turns.waiting) == (["fails", "first"], 0)
