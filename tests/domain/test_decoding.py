"""Decoding bodies: valid events are decoded exactly, and invalid events are refused by index."""

import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live.domain.decoding import DecodedBody, decode_json, decode_ndjson
from live.domain.event import MAX_SCORE, IncomingEvent, Rejection, entry_of, make_entry, member_fault
from live.domain.text import character_fault
from live.errors import ProblemError
from tests.harness.costs import is_linear

Fields = dict[str, Any]
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

labels = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
readable = labels.filter(lambda text: character_fault(text) is None)
offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2999, 1, 1), timezones=offsets)  # noqa: DTZ001
events = st.fixed_dictionaries(
    {"key": labels.filter(lambda member: member_fault(member) is None)},
    optional={
        "amount": st.integers(-MAX_SCORE, MAX_SCORE),
        "time": times.map(datetime.isoformat),
        **dict.fromkeys(("type", "board", "id", "source", "category"), labels),
        "actor": labels.filter(lambda text: text == text.strip() and not re.search("[\0-\x1f\x7f-\x9f]", text)),
        "fields": st.dictionaries(labels, st.integers(-(2**63), 2**63 - 1), max_size=3),
        "metadata": st.dictionaries(readable, st.none() | st.booleans() | st.lists(readable, max_size=2), max_size=3),
    },
)
spaces = st.text(" \t\r\n", max_size=3)


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """A string as JSON, with some unnecessary escapes."""
    literal = draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))
    parts = [
        json.dumps(character, ensure_ascii=False)[1:-1] if keep else escaped(character)
        for character, keep in zip(text, literal, strict=True)
    ]
    return f'"{"".join(parts)}"'


def escaped(character: str) -> str:
    """A character as one or two Unicode escapes of four hexadecimal digits."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


@st.composite
def written(draw: st.DrawFn, fields: list[tuple[str, Any]]) -> str:
    """An object as JSON, with fields in any order, any whitespace and any escapes."""
    parts = []
    for name, value in draw(st.permutations(fields)):
        text = draw(spelled(value)) if isinstance(value, str) else json.dumps(value)
        parts.append(f"{draw(spaces)}{draw(spelled(name))}{draw(spaces)}:{draw(spaces)}{text}{draw(spaces)}")
    return draw(spaces) + "{" + ",".join(parts) + "}" + draw(spaces)


def event_of(fields: Fields) -> IncomingEvent:
    """The event that has these fields."""
    read: Fields = {}
    if "time" in fields:
        read["time"] = datetime.fromisoformat(fields["time"])
    if "metadata" in fields:  # metadata is kept as it was written
        read["metadata"] = msgspec.Raw(json.dumps(fields["metadata"]).encode())
    member: Fields = {"member": fields["key"]} if "key" in fields else {}
    return IncomingEvent(**{name: value for name, value in {**fields, **read, **member}.items() if name != "key"})


def parts(body: DecodedBody) -> tuple[list[tuple[int, IncomingEvent]], list[Rejection]]:
    """The valid events of a body with their indexes, and the rejections of the invalid events."""
    return list(zip(body.indexes, body.events, strict=True)), body.rejections


def as_line(text: str) -> bytes:
    """JSON without line ends."""
    return text.replace("\r", " ").replace("\n", " ").encode()


@pytest.mark.slow
@given(st.data(), st.lists(events, min_size=1, max_size=4))
def test_valid_json_is_decoded_exactly(data: st.DataObject, many: list[Fields]) -> None:
    """The JSON may have any whitespace, order and escapes, alone, in an array or as NDJSON."""
    texts = [data.draw(written(list(fields.items()))) for fields in many]
    expected = [event_of(fields) for fields in many]

    assert parts(decode_json(f"[{','.join(texts)}]".encode(), 10)) == (list(enumerate(expected)), [])
    assert parts(decode_ndjson(b"\n".join(map(as_line, texts)), 10)) == (list(enumerate(expected)), [])
    assert parts(decode_json(texts[0].encode(), 1)) == ([(0, expected[0])], [])


@pytest.mark.parametrize(
    "text",
    [
        '{"key":"b","amount":2,"key":"a"}',
        '{"\\u006bey":"b","amount":1,"amount":2,"key":"a"}',
        '{"amount":1,"key":"a","amount":2}',
    ],
)
def test_the_last_of_repeated_fields_counts(text: str) -> None:
    """It counts alone, in an array and as a line."""
    expected = event_of({"key": "a", "amount": 2})
    assert parts(decode_json(text.encode(), 1)) == ([(0, expected)], [])
    assert parts(decode_json(f"[{text}]".encode(), 1)) == ([(0, expected)], [])
    assert parts(decode_ndjson(text.encode(), 1)) == ([(0, expected)], [])


@pytest.mark.slow
@settings(max_examples=500)
@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode) | st.from_regex(rb'[\[{"key:a,1}\]\s]{1,30}'))
def test_any_bytes_give_a_body_or_a_problem(data: bytes) -> None:
    """Decoders raise no error but `ProblemError`, and every event is either valid or refused."""
    for decode in (decode_json, decode_ndjson):
        with suppress(ProblemError):
            body = decode(data, 5)
            indexes = [*body.indexes, *(rejection.index for rejection in body.rejections)]
            assert sorted(indexes) == list(range(len(indexes)))


@pytest.mark.parametrize("body", [b'["\xff"]', b'[{"key": "\xff"}]', b'[{"key": "a"}, 1, "\xff"]'])
def test_an_array_that_is_not_utf_8_is_refused_as_a_whole(body: bytes) -> None:
    """The refusal names the first byte that can't be read."""
    with pytest.raises(ProblemError, match=f"not UTF-8: byte {body.index(0xFF)}"):
        decode_json(body, 1000)


@pytest.mark.slow
@given(st.lists(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists), max_size=6))
def test_an_array_is_decoded_if_and_only_if_it_is_json(values: list[Any]) -> None:
    """If it is JSON, its elements are refused one by one. Otherwise the whole body is refused."""
    body = json.dumps(values).encode()
    try:
        json.dumps(values, allow_nan=False)
    except ValueError:
        with pytest.raises(ProblemError, match="malformed_body"):
            decode_json(body, 10)
    else:
        assert len(decode_json(body, 10).rejections) == len(values)


@pytest.mark.parametrize("line", [b'{"key":"a"}', b'{"key":1}'])
def test_the_number_of_events_is_limited(line: bytes) -> None:
    """Both valid and invalid events count towards the limit. A body with one event too many is refused."""
    array, lines = b"[" + b",".join([line] * 6) + b"]", b"\n".join([line] * 6)
    for body in (decode_json(array, 6), decode_ndjson(lines, 6)):
        assert len(body.events) + len(body.rejections) == 6
    with pytest.raises(ProblemError, match="more than 5 events in one body"):
        decode_json(array, 5)
    with pytest.raises(ProblemError, match="more than 5 events in one body"):
        decode_ndjson(lines, 5)


def test_blank_lines_have_no_index() -> None:
    """NDJSON may end with a line end, have empty lines, and use CR LF."""
    body = decode_ndjson(b'\n{"key":"a"}\r\n  \t\r\n{"key":1}\n\n{"key":"b"}\n', 3)
    assert list(body.indexes) == [0, 2]
    assert [rejection.index for rejection in body.rejections] == [1]


def test_the_cost_of_invalid_elements_is_linear() -> None:
    """Four times as many elements take four times as long, not sixteen times."""

    def work(count: int) -> None:
        with pytest.raises(ProblemError, match="in one body"):
            decode_json(b"[" + b"1," * count + b"1]", 1000)

    assert is_linear(work, 100_000)


@pytest.mark.parametrize(
    ("time_text", "milliseconds"),
    [
        ("2026-11-21T12:00:00Z", 0),
        ("2026-11-21t12:00:00z", 0),
        ("2026-11-21T14:00:00+02:00", 0),
        ("2026-11-21T12:00:00.1234Z", 123),
        ("2026-11-21T11:59:59.999999Z", -1),
        ("1969-12-31T23:59:59.5Z", -int(NOON.timestamp() * 1000) - 500),
    ],
)
def test_times_are_rounded_down_to_milliseconds(time_text: str, milliseconds: int) -> None:
    """Times are RFC 3339, in any zone."""
    (event,) = decode_json(json.dumps({"key": "a", "time": time_text}).encode(), 1).events
    assert entry_of(event) == make_entry("a", 1, int(NOON.timestamp() * 1000) + milliseconds)


@pytest.mark.parametrize(
    "time_text",
    ["", "now", "2026-11-21", "2026-11-21T12:00:00", "2026-11-21T12:00Z", "2026-13-01T00:00:00Z",
     "2026-11-21T25:00:00Z", "2026-02-29T00:00:00Z", "2026-11-21T23:59:60Z", "20261121T120000Z",
     "+12026-11-21T12:00:00Z"],
)  # fmt: skip
def test_a_time_that_is_not_rfc_3339_is_refused(time_text: str) -> None:
    """Examples are a time without a zone, and a day that does not exist."""
    (rejection,) = decode_json(json.dumps({"key": "a", "time": time_text}).encode(), 1).rejections
    expected = "`time`: expected a time with a time zone, such as 2026-11-22T12:00:00Z"
    assert (rejection.code, rejection.detail) == ("event_invalid", expected)


@pytest.mark.parametrize(
    "wrong", [{"key": " a"}, {"key": "a "}, {"key": "a", "actor": " x"}, {"key": "a", "actor": "x "}]
)
@pytest.mark.parametrize("count", [1, 3])
def test_white_space_at_the_ends_is_refused_in_every_form(wrong: dict[str, str], count: int) -> None:
    """One person would have two names."""
    events = [{"key": "b b"}] * (count - 1) + [wrong]
    for body in (decode_json(json.dumps(events).encode(), 9), decode_ndjson(json.dumps(wrong).encode(), 9)):
        assert len(body.rejections) == 1
        assert "white space" in body.rejections[0].detail


@pytest.mark.parametrize("wrong", [{"key": "."}, {"key": ".."}, {"key": "a", "id": "."}, {"key": "a", "id": ".."}])
@pytest.mark.parametrize("count", [1, 3])
def test_a_name_that_clients_drop_from_paths_is_refused(wrong: dict[str, str], count: int) -> None:
    """`DELETE /v1/boards/posts/events/..` would delete the board."""
    events = [{"key": "..."}] * (count - 1) + [wrong]
    for body in (decode_json(json.dumps(events).encode(), 9), decode_ndjson(json.dumps(wrong).encode(), 9)):
        assert [rejection.detail.partition("which ")[2] for rejection in body.rejections] == ["no URL can name"]
