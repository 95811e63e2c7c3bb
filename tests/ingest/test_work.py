"""No body blocks the event loop: decoding stops early, runs in small steps, and is charged by the work."""

import asyncio
import gc
import gzip
import json
import math
import time
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

import pytest

from live.domain.cloudevent import decode_batch, decode_structured
from live.domain.decoding import Steps, decode_json, decode_ndjson
from live.errors import ProblemError
from live.ingest.decompression import decompress
from live.ingest.intake import CheckedHead, Intake
from live.ingest.replies import Reply
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import serving
from tests.harness.settings import fresh_settings

MIB: Final = 1024 * 1024
MOST: Final = 1000
EVENT: Final = '{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"k"%s}'


def array(element: str, size: int = MIB) -> bytes:
    """An array of about `size` bytes that repeats one element."""
    count = (size - 2) // (len(element.encode()) + 1)
    return f"[{','.join([element] * count)}]".encode()


def filled(head: str, piece: str, tail: str, size: int = MIB) -> bytes:
    """A head and a tail with a repeated piece in between, about `size` bytes."""
    return (head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail).encode()


def _structured(body: bytes, _most: int) -> Steps:
    return decode_structured(body)


MARKS: Final = "".join(chr(0x300 + n % 0x30) for n in range(480))
WORST: Final[dict[str, tuple[Callable[[bytes, int], Steps], bytes]]] = {
    "numbers": (decode_json, array("1")),
    "empty arrays": (decode_json, array("[]")),
    "empty objects": (decode_json, array("{}")),
    "good events": (decode_json, array('{"key":"a"}')),
    "many good events": (decode_json, array('{"key":"a"}', 40_000)),
    "good events and a bad one": (decode_json, array('{"key":"a"}', 11_000)[:-1] + b",1]"),
    "escapes": (decode_json, array('{"key":"\\u0061"}', 15_000)),
    "doubled fields": (decode_json, array('{"key":"a","key":"b"}', 20_000)),
    "deep arrays": (decode_json, b"[" * MIB),
    "deep arrays in events": (decode_json, array('{"key":"a","metadata":' + "[" * 900 + "]" * 900 + "}")),
    "a huge number": (decode_json, filled('[{"key":"a","amount":', "1", "}]")),
    "huge numbers": (decode_json, array('{"key":"a","amount":' + "1" * 4000 + "}")),
    "many fields": (decode_json, filled('[{"key":"a","fields":{"x":1', ',"y":1', "}}]")),
    "many fields in one object": (decode_json, filled('{"key":"a","fields":{"x":1', ',"y":1', "}}", 262_000)),
    "many fields in one array": (decode_json, filled('[{"key":"a","fields":{"x":1', ',"y":1', "}}]", 262_000)),
    "numbers in one event": (decode_json, filled('[{"key":"a","metadata":[1', ",1", "]},1]")),
    "numbers in each event": (decode_json, array('{"key":"a","metadata":[1' + ",1" * 30_000 + "]}")),
    "spaces": (decode_json, filled("[", " ", "]")),
    "spaces before": (decode_json, filled("", " ", "[1]")),
    "a long string": (decode_json, filled('["', "a", '"]')),
    "an open string": (decode_json, filled('["', "a", "")),
    "escaped string": (decode_json, filled('["', "\\u0061", '"]')),
    "marks": (decode_json, array(json.dumps({"key": "a" + MARKS}, ensure_ascii=False))),
    "long metadata": (decode_json, array('{"key":"a","metadata":{"x":"' + "y" * 4000 + '"}}')),
    "blank lines": (decode_ndjson, b"\n" * MIB),
    "blank lines and one event": (decode_ndjson, b"\n" * (MIB - 20) + b'{"key":"a"}'),
    "short lines": (decode_ndjson, b"1\n" * (MIB // 2)),
    "long lines": (decode_ndjson, (b'{"key":"' + b"a" * 69_000 + b'"}\n') * 15),
    "a line": (decode_ndjson, filled("[1", ",1", "]")),
    "attributes": (_structured, filled(EVENT[:-3] + ',"a":1', ',"b":1', "}")),
    "attributes of a batch": (decode_batch, array(EVENT % "".join(f',"a{n}":1' for n in range(900)))),
    "data": (_structured, filled(EVENT[:-3] + ',"data":[1', ",1", "]}")),
    "data in a batch": (decode_batch, filled("[" + EVENT[:-3] + ',"data":[1', ",1", "]}]", 60_000)),
    "a batch of numbers": (decode_batch, array("1")),
    "not a batch": (decode_batch, filled('{"a":[1', ",1", "]}")),
}


def longest(steps: Any) -> tuple[float, int]:
    """CPU time of the longest step, and the number of steps; without garbage collections."""
    worst, number = 0.0, 0
    gc.collect()
    gc.disable()
    try:
        while True:
            started = time.thread_time()
            try:
                next(steps)
            except (StopIteration, ProblemError):
                return max(worst, time.thread_time() - started), number
            worst, number = max(worst, time.thread_time() - started), number + 1
    finally:
        gc.enable()


def unit() -> float:
    """CPU time of a piece of work that takes about a millisecond on a machine of 2024."""
    started = time.thread_time()
    total = 0
    for number in range(20_000):
        total += number * number % 7
    assert total
    return time.thread_time() - started


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_no_step_of_any_body_takes_long(name: str) -> None:
    """The longest step takes less than 8 times as long as `unit()`, measured right after it. The best run counts."""
    decode, body = WORST[name]
    assert len(body) <= MIB
    ratio = math.inf
    for _ in range(12):
        ratio = min(ratio, longest(decode(body, MOST))[0] / unit())
        if ratio < 5:
            break
    assert ratio < 8, f"a step took {ratio:.1f} units"


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", [gzip.compress(b"") * 50_000, gzip.compress(b" " * MIB), gzip.compress(b"a" * 99) * 9000]
)
def test_decompression_runs_in_steps(body: bytes) -> None:
    """The bodies are a gzip bomb, and bodies of many small gzip members."""
    worst = min(longest(decompress(body, MIB))[0] / unit() for _ in range(3))
    assert worst < 8


@pytest.mark.parametrize(
    ("decode", "element", "separator"),
    [
        (decode_json, b"1", b","),
        (decode_json, b'{"key":"a"}', b","),
        (decode_batch, b"1", b","),
        (decode_ndjson, b"1", b"\n"),
    ],
)
def test_decoding_stops_at_the_maximum_number_of_events(decode: Any, element: bytes, separator: bytes) -> None:
    """Decoding looks at one element more than allowed: a body twice as long takes no more steps."""

    def steps(count: int) -> int:
        body = separator.join([element] * count)
        steps_ = decode(body if separator == b"\n" else b"[" + body + b"]", 100)
        taken: list[None] = []
        with pytest.raises(ProblemError, match="too_many_events"):
            taken.extend(steps_)
        return len(taken)

    assert steps(60_000) == steps(30_000) <= 3


async def test_a_compressed_body_is_charged_for_its_content(valkey_url: str) -> None:
    """1,056 bytes of gzip contain half a million elements. The producer pays for them even if they are refused."""
    bomb = gzip.compress(array("1"))
    assert len(bomb) < 2000
    settings = fresh_settings(valkey_url, rate=100, burst=1500, max_events=1000)
    async with serving(settings) as client:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        codes = [(await client.post("/v1/events", content=bomb, headers=headers)).status_code for _ in range(4)]
        assert codes[0] == 413
        assert codes[-1] == 429


async def test_rejected_elements_are_charged(valkey_url: str) -> None:
    """A rejected element counts towards the rate like an event."""
    settings = fresh_settings(valkey_url, rate=100, burst=1500, max_events=1000)
    async with serving(settings) as client:
        codes = [(await client.post("/v1/events", json=[1] * 900)).status_code for _ in range(4)]
        assert codes[0] == 200
        assert codes[-1] == 429


@pytest.mark.slow
async def test_other_tasks_run_while_a_body_is_decoded(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is decoded in many steps leaves other tasks a turn after each time slice. The body is answered."""
    turns, during, stop = 0, 0, False
    decode = Intake._decode

    def watched(intake: Intake, head: CheckedHead, body: bytes) -> Steps:
        nonlocal during
        before = turns
        decoded = yield from decode(intake, head, body)
        during = turns - before
        return decoded

    async def turn() -> None:
        nonlocal turns
        while not stop:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Intake, "_decode", watched)
    monkeypatch.setattr("live.ingest.intake._TIME_SLICE", 0.0)  # so that the speed of the machine does not matter
    async with serving(fresh_settings(valkey_url)) as client:
        turning = asyncio.create_task(turn())
        body = array(json.dumps({"key": "a" + MARKS}, ensure_ascii=False), 900_000)
        response = await client.post("/v1/events", content=body, headers={"Content-Type": "application/json"})
        stop = True
        await turning
        assert response.status_code == 200
        assert during > 20


async def begun_at_once(store: str) -> int:
    """Send twelve compressed bodies at once. Return how many of them, at most, were decoded at the same time."""
    begun = most = 0
    decode = Intake._decode

    def counting(intake: Intake, head: CheckedHead, body: bytes) -> Steps:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        try:
            return (yield from decode(intake, head, body))
        finally:
            begun -= 1

    lines = b"\n".join(b'{"key":"%d%b"}' % (number, b"x" * 900) for number in range(MOST))
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    async with serving(fresh_settings(store, rate=0)) as client:
        with patch.object(Intake, "_decode", counting):
            sent = [client.post("/v1/events", content=gzip.compress(lines), headers=headers) for _ in range(12)]
            assert [response.status_code for response in await asyncio.gather(*sent)] == [200] * 12
    return most


@pytest.mark.slow
async def test_bodies_that_wait_for_their_turn_have_not_begun(valkey_url: str) -> None:
    """Once its decoding has begun, a body takes many times its size in memory: a few KB of gzip hold a megabyte."""
    assert await begun_at_once(valkey_url) == 1


@pytest.mark.slow
@pytest.mark.mutant
async def test_bodies_that_all_begin_at_once_are_caught(valkey_url: str) -> None:
    """The mutant takes the first step of every body as soon as it is complete."""

    def submit(intake: Intake, head: CheckedHead, body: bytes, done: Callable[[Reply], None]) -> None:
        steps = intake._decode(head, body)
        next(steps)
        intake._queue(head, steps, done)

    with must_be_caught("every body begins at once"), replaced(Intake, "submit", submit):
        await test_bodies_that_wait_for_their_turn_have_not_begun(valkey_url)
