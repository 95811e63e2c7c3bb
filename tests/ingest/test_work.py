"""No body blocks the event loop for long, and each is charged by its work."""

import gc
import gzip
import json
import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

from live.domain.decoding import DecodedBody, decode_batch, decode_json, decode_ndjson, decode_structured
from live.errors import ProblemError
from live.ingest.intake import decompress
from live.settings import Settings
from tests.harness.server import serving
from tests.harness.settings import fresh_settings

LARGEST: Final = Settings().max_body
MOST: Final = 1000
EVENT: Final = '{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"k"%s}'


def array(element: str, size: int = LARGEST) -> bytes:
    """An array of about `size` bytes that repeats one element."""
    count = (size - 2) // (len(element.encode()) + 1)
    return f"[{','.join([element] * count)}]".encode()


def filled(head: str, piece: str, tail: str, size: int = LARGEST) -> bytes:
    """A head and a tail with a repeated piece in between, about `size` bytes."""
    return (head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail).encode()


def structured(body: bytes, _most: int) -> DecodedBody:
    """Decode one CloudEvent."""
    return decode_structured(body)


def distinct(head: str, tail: str) -> bytes:
    """An object with as many names as fit."""
    names = ",".join(f'"{number:x}":1' for number in range((LARGEST - len(head) - len(tail)) // 9))
    return f"{head}{names}{tail}".encode()


MARKS: Final = "".join(chr(0x300 + n % 0x30) for n in range(480))
CEDILLAS: Final = json.dumps({"key": "a" + "\u0327" * 480}, ensure_ascii=False)  # texts that take long to normalize
WORST: Final[dict[str, tuple[Callable[[bytes, int], DecodedBody], bytes]]] = {
    "numbers": (decode_json, array("1")),
    "empty arrays": (decode_json, array("[]")),
    "empty objects": (decode_json, array("{}")),
    "good events": (decode_json, array('{"key":"a"}')),
    "good events and a bad one": (decode_json, array('{"key":"a"}', 11_000)[:-1] + b",1]"),
    "too many good events and a bad one": (decode_json, array('{"key":"a"}', LARGEST - 2)[:-1] + b",1]"),
    "deep arrays": (decode_json, b"[" * LARGEST),
    "deep arrays in events": (decode_json, array('{"key":"a","metadata":' + "[" * 900 + "]" * 900 + "}")),
    "huge numbers": (decode_json, array('{"key":"a","amount":' + "1" * 4000 + "}")),
    "many fields": (decode_json, distinct('{"key":"a","fields":{', "}}")),
    "many fields in an array": (decode_json, distinct('[{"key":"a","fields":{', "}},1]")),
    "numbers in one event": (decode_json, filled('[{"key":"a","metadata":{"a":[1', ",1", "]}},1]")),
    "spaces": (decode_json, filled("[", " ", "]")),
    "spaces before": (decode_json, filled("", " ", "[1]")),
    "escaped string": (decode_json, filled('["', "\\u0061", '"]')),
    "marks": (decode_json, array(json.dumps({"key": "a" + MARKS}, ensure_ascii=False))),
    "cedillas": (decode_json, array(CEDILLAS)),
    "joiners": (decode_json, array('{"key":"%s"}' % ("\u200d" * 330))),
    "private characters": (decode_json, array('{"key":"a","metadata":{"x":"%s"}}' % ("\ue003" * 1300))),
    "escapes in metadata": (decode_json, array('{"key":"a","metadata":{"x":"%s"}}' % ("\\u0041" * 600))),
    "short escapes in metadata": (decode_json, array('{"key":"a","metadata":{"x":"%s"}}' % ("\\\\" * 2000))),
    "blank lines": (decode_ndjson, b"\n" * LARGEST),
    "short lines": (decode_ndjson, b"1\n" * (LARGEST // 2)),
    "a line": (decode_ndjson, filled("[1", ",1", "]")),
    "attributes": (structured, distinct(EVENT[:-3] + ",", "}")),
    "attributes of a batch": (decode_batch, array(EVENT % "".join(f',"a{n}":1' for n in range(900)))),
    "data": (structured, filled(EVENT[:-3] + ',"data":[1', ",1", "]}")),
    "a batch of numbers": (decode_batch, array("1")),
}
GZIP: Final = {
    "a bomb": gzip.compress(b" " * 10 * LARGEST),
    "empty members": gzip.compress(b"") * (LARGEST // 20),
    "members and a large one": gzip.compress(b"") * 99 + gzip.compress(random.Random(1).randbytes(LARGEST - 9000)),
}


def cost(work: Callable[[], object]) -> float:
    """CPU time of work that may be refused; without garbage collections."""
    gc.collect()
    gc.disable()
    started = time.thread_time()
    try:
        with suppress(ProblemError):
            work()
        return time.thread_time() - started
    finally:
        gc.enable()


def ratio(work: Callable[[], object]) -> float:
    """How many times as long as `json.loads` needs for many small arrays, measured right after it. The best run counts.

    Both take new memory, whose price depends on the machine and on what else it does.
    """
    lowest, arrays = math.inf, array("[]")
    for _ in range(100):  # a neighbor may slow down work on memory for seconds
        lowest = min(lowest, cost(work) / cost(lambda: json.loads(arrays)))
        if lowest < 2:
            break
    return lowest


@pytest.mark.alone  # beside seven others, CPU time is up to three times as much
@pytest.mark.parametrize("name", WORST)
def test_no_body_takes_long(name: str) -> None:
    """Decoding the largest body takes not much longer than decoding as many bytes of small arrays."""
    decode, body = WORST[name]
    assert len(body) <= LARGEST
    assert ratio(lambda: decode(body, MOST)) < 3


@pytest.mark.alone  # beside seven others, CPU time is up to three times as much
@pytest.mark.parametrize("name", GZIP)
def test_no_compressed_body_takes_long(name: str) -> None:
    """Decompressing the largest body takes a few milliseconds."""
    assert len(GZIP[name]) <= LARGEST
    assert ratio(lambda: decompress(GZIP[name], LARGEST)) < 3


def test_a_body_has_a_limited_number_of_gzip_members() -> None:
    """Each member costs a copy of the rest of the body."""
    assert decompress(gzip.compress(b"a") * 100, LARGEST) == b"a" * 100
    with pytest.raises(ProblemError, match="malformed_body: the gzip body has more than 100 members"):
        decompress(gzip.compress(b"a") * 101, LARGEST)


async def test_a_compressed_body_is_charged_for_its_content(valkey_url: str) -> None:
    """Some bytes of gzip contain a hundred thousand elements. The producer pays for them even if they are refused."""
    bomb = gzip.compress(array("1"))
    assert len(bomb) < 2000
    settings = fresh_settings(valkey_url, rate=750)
    async with serving(settings) as client:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        codes = [(await client.post("/v1/events", content=bomb, headers=headers)).status_code for _ in range(4)]
        assert codes[0] == 413
        assert codes[-1] == 429


async def test_rejected_elements_are_charged(valkey_url: str) -> None:
    """A rejected element counts towards the rate like an event."""
    settings = fresh_settings(valkey_url, rate=750)
    async with serving(settings) as client:
        codes = [(await client.post("/v1/events", json=[1] * 900)).status_code for _ in range(4)]
        assert codes[0] == 200
        assert codes[-1] == 429
