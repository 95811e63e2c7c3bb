"""The ledger: nobody holds more than half of a resource, and no client waits for more than one request of another."""

import asyncio
from collections import Counter
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from live.errors import ProblemError
from live.system.ledger import Resource, Turns

GREEDY, MODEST = "greedy", "modest"


def test_nobody_holds_more_than_half() -> None:
    """Whoever holds nothing may hold one thing, however large it is."""
    places = Resource(10)
    for _ in range(5):
        assert places.is_within_half("a")
        places.add("a", 1)
    assert not places.is_within_half("a")
    assert places.is_within_half("b")
    places.add("a", -1)
    assert places.is_within_half("a")
    assert Resource(1).is_within_half("a")
    assert Resource(100).is_within_half("a", 1000)


def test_a_resource_is_used_up() -> None:
    """The first thing always has room, unless there is no room at all."""
    places = Resource(3)
    assert places.has_room(1000)
    places.add("a", 2)
    assert (places.has_room(), places.has_room(2)) == (True, False)
    places.add("b", 1)
    assert not places.has_room()
    assert not Resource(0).has_room()


def test_the_clients_that_hold_most_are_found() -> None:
    """Of clients that hold equally much, each call begins with another."""
    places = Resource(100)
    for client, amount in (("a", 1), ("b", 3), ("c", 2), ("d", 3)):
        places.add(client, amount)
    assert list(places.largest(1)) == ["b", "d", "c"]
    assert [next(places.largest(0)) for _ in range(3)] == ["b", "d", "b"]
    places.add("b", -3)
    assert list(places.largest(2)) == ["d"]
    assert (places.held, places.of("b"), places.of("d")) == (6, 0, 3)
    grains = Resource(1000, grain=10)
    for client, amount in (("a", 11), ("b", 19), ("c", 5)):
        grains.add(client, amount)
    assert list(grains.largest(5)) == ["a", "b"]
    assert list(grains.largest(11)) == ["b"]


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
