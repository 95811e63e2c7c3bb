"""Decoding CloudEvents: events of the official SDK are decoded exactly, and invalid events are refused by index."""

import json
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from live.domain.decoding import DecodedBody, decode_batch, decode_structured
from live.domain.event import IncomingEvent, member_fault
from live.errors import ProblemError

Attributes = dict[str, Any]

EVENT: Attributes = {"specversion": "1.0", "id": "1", "source": "/s", "type": "like", "subject": "a"}
INVALID, KEY = "event_invalid", "key_invalid"

characters = st.characters(codec="utf-8", exclude_categories=("Cc", "Cn"))
texts = st.text(characters, min_size=1, max_size=20)
trimmed = texts.filter(lambda text: text == text.strip())
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2999, 1, 1), timezones=zones)  # noqa: DTZ001
values = st.none() | st.booleans() | st.integers() | st.text(characters, max_size=5)
# JSON can express these values, but UTF-8 or an attribute can't.
scraps = values | st.sampled_from(["\ud800", "a\udc00", {}, []])
data = st.none() | st.binary(max_size=9) | texts | st.dictionaries(texts, st.lists(values, max_size=2), max_size=3)
attributes = st.fixed_dictionaries(
    {
        **dict.fromkeys(("id", "source", "type"), texts),
        "subject": texts.filter(lambda member: member_fault(member) is None),
        "time": times,  # the SDK adds the current time to an event without a time
    },
    optional={
        "amount": st.integers(-(2**31), 2**31 - 1),
        "datacontenttype": st.sampled_from(["application/json", "text/plain", "application/vnd.x+json"]),
        "partitionkey": texts,
        "sequence": st.integers(-(2**31), 2**31 - 1),
        "board": texts,
        "actor": trimmed,
    },
)


def expected(given_: Attributes) -> IncomingEvent:
    """Return the event that these attributes describe."""
    same = {name: given_.get(name, UNSET) for name in ("amount", "type", "board", "time", "id", "source", "actor")}
    return IncomingEvent(member=given_["subject"], **same)


def as_json(changes: Attributes) -> bytes:
    """An event with some attributes changed; `...` removes an attribute."""
    return json.dumps({name: value for name, value in {**EVENT, **changes}.items() if value is not ...}).encode()


def fates(body: DecodedBody) -> list[tuple[str, str]]:
    """The code and detail of each refusal."""
    return [(rejection.code, rejection.detail) for rejection in body.rejections]


@settings(deadline=None)  # the SDK takes most of the test's time
@given(attributes, data)
def test_events_of_the_sdk_are_decoded_exactly(given_: Attributes, payload: Any) -> None:
    """Events may have any data and any other attributes."""
    structured = to_structured_event(CloudEvent(dict(given_), payload))
    assert decode_structured(structured.body) == DecodedBody([expected(given_)], [0], [])


@settings(deadline=None)
@given(st.lists(attributes, max_size=4))
def test_a_batch_is_an_array_of_events(many: list[Attributes]) -> None:
    """The array may be empty."""
    body = b"[" + b",\n".join(JSONFormat().write(CloudEvent(dict(given_))) for given_ in many) + b"]"
    events = [expected(given_) for given_ in many]
    assert decode_batch(body, 4) == DecodedBody(events, list(range(len(many))), [])


@pytest.mark.parametrize("name", ["id", "source", "type", "subject", "specversion"])
def test_required_attributes_must_be_present(name: str) -> None:
    """The specification requires four attributes, and this server also `subject`. Null is not allowed."""
    assert fates(decode_structured(as_json({name: ...}))) == [(INVALID, f"the field `{name}` is missing")]
    assert fates(decode_structured(as_json({name: None}))) == [(INVALID, f"`{name}`: expected a text, got null")]


def test_an_event_carries_all_that_a_plain_one_does() -> None:
    """A CloudEvent can have a category, any amount also as text, and fields and metadata as text."""
    more = {"category": "art", "fields": '{"levels": 5, "time": -2}', "metadata": ' {"path": "/a"} '}
    for amount in (-3, 2**53, -(2**53), "-9007199254740992", "7"):
        (event,) = decode_structured(as_json({"amount": amount, **more})).events
        assert (event.amount, event.category) == (int(amount), "art")
        assert event.fields == {"levels": 5, "time": -2}
        assert bytes(event.metadata) == b'{"path": "/a"}'  # type: ignore[arg-type]
    for wrong, code in (
        ({"amount": 2**53 + 1}, INVALID),
        ({"amount": "1.5"}, INVALID),
        ({"fields": "[1]"}, INVALID),
        ({"fields": '{"a": 1.5}'}, INVALID),
        ({"metadata": "{"}, INVALID),
        ({"metadata": "[" * 20_000}, INVALID),
        ({"metadata": "[]"}, "metadata_invalid"),
        ({"metadata": json.dumps({"a": "x" * 5000})}, "metadata_invalid"),
    ):
        (refused,) = decode_structured(as_json(wrong)).rejections
        assert refused.code == code, wrong


@pytest.mark.parametrize("name", ["time", "amount", "board", "actor", "dataschema", "data", "other"])
def test_null_is_the_same_as_unset(name: str) -> None:
    """Every optional attribute may be null."""
    assert decode_structured(as_json({name: None})) == decode_structured(as_json({}))


# Each name maps to the changed attributes, the code and the detail.
REFUSED: dict[str, tuple[Attributes, str, str]] = {
    "version": ({"specversion": "0.3"}, INVALID, "`specversion`: expected a text matching regex '^1[.]0$'"),
    "version 1.0.2": ({"specversion": "1.0.2"}, INVALID, "`specversion`: expected a text of length <= 3"),
    "empty id": ({"id": ""}, INVALID, "`id`: expected a text of length >= 1"),
    "long source": ({"source": "s" * 257}, INVALID, "`source`: expected a text of length <= 256"),
    "no time": ({"time": "now"}, INVALID, "`time`: expected a time with a time zone, such as 2026-11-22T12:00:00Z"),
    "no zone": ({"time": "2026-11-21T12:00:00"}, INVALID,
                "`time`: expected a time with a time zone, such as 2026-11-22T12:00:00Z"),
    "amount 2^53 + 1": ({"amount": str(2**53 + 1)}, INVALID, "`amount`: expected a whole number <= 9007199254740992"),
    "amount 01": ({"amount": "01"}, INVALID, "`amount`: expected a whole number, got a text"),
    "amount +1": ({"amount": "+1"}, INVALID, "`amount`: expected a whole number, got a text"),
    "amount \u0661": ({"amount": "\u0661"}, INVALID, "`amount`: expected a whole number, got a text"),
    "empty key": ({"subject": ""}, KEY, "key is empty"),
    "bidi": ({"subject": "\u202e"}, KEY, "key contains the control or format character U+202E"),
    "control": ({"subject": "a\nb"}, KEY, "key contains the control or format character U+000A"),
    "dash": ({"other-name": "1"}, INVALID,
             "'other-name' is not an attribute name; use lower-case letters and digits"),
    "capital": ({"Amount": 30}, INVALID, "'Amount' is not an attribute name; use lower-case letters and digits"),
    "no name": ({"": 30}, INVALID, "'' is not an attribute name; use lower-case letters and digits"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_attribute_refuses_its_event(name: str) -> None:
    """The detail is the same in both modes. Other events of a batch are not affected."""
    changes, code, detail = REFUSED[name]
    event = as_json(changes)
    assert fates(decode_structured(event)) == [(code, detail)]
    body = decode_batch(b"[" + b",".join([as_json({}), event, as_json({})]) + b"]", 3)
    assert fates(body) == [(code, detail)]
    assert ([rejection.index for rejection in body.rejections], body.indexes) == ([1], [0, 2])


@pytest.mark.parametrize(
    ("event", "detail"),
    [
        (b"5", "expected an object, got a whole number"),
        (b"[]", "expected an object, got a list"),
        (b"null", "expected an object, got null"),
        (as_json({"subject": {"a": 1}}), "`subject`: expected a text, got an object"),
        (as_json({"id": 1}), "`id`: expected a text, got a whole number"),
        (as_json({"amount": 1.5}), "`amount`: expected a whole number, got a decimal number"),
        (as_json({"amount": True}), "`amount`: expected a whole number, got true or false"),
        (as_json({"time": 1}), "`time`: expected a time, got a whole number"),
    ],
)
def test_a_value_of_a_wrong_type_refuses_its_event(event: bytes, detail: str) -> None:
    """The event is alone or in a batch."""
    assert fates(decode_structured(event)) == [(INVALID, detail)]
    assert fates(decode_batch(b"[" + event + b"]", 1)) == [(INVALID, detail)]


def test_the_last_of_repeated_attributes_counts() -> None:
    """This is the same as for the fields of plain events."""
    (event,) = decode_structured(b'{"amount":"1","subject":"b",' + as_json({"amount": "2"})[1:]).events
    assert (event.member, event.amount) == ("a", 2)


def test_an_event_may_have_a_hundred_attributes() -> None:
    """All count, also those that the server ignores."""
    more = {f"a{number}": 0 for number in range(100 - len(EVENT))}
    assert fates(decode_structured(as_json(more))) == []
    assert fates(decode_structured(as_json(more | {"one": 0}))) == [(INVALID, "the event has more than 100 attributes")]


def test_data_is_ignored() -> None:
    """The data may contain anything, including repeated names, and may be present in both forms."""
    inner = b'{"a":1,"a":[{"A B":1e5,"data":{}}],"n":' + b"9" * 5000 + b"}"
    event = as_json({"data_base64": "no base64", "datacontenttype": "x", "dataschema": "y", "list": [1, {"a": 2}]})
    body = event[:-1] + b',"data":' + inner + b"}"
    assert decode_structured(body) == decode_structured(as_json({}))


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body is empty"),
        (b" \n\t", "the body is empty"),
        (b'{"id":"\xff"}', "not UTF-8: byte 7 can't be read"),
        (b'{"id":', "JSON is malformed: it is cut short"),
        (b'{"id":NaN}', "JSON is malformed: invalid character (byte 6)"),
        (rb'{"id":"\ud800"}', "JSON is malformed: the text contains half of a surrogate pair"),
        (b'{"data":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "JSON is nested too deeply"),
        (b"{} {}", "JSON is malformed: send several events as an array or as lines; more follows (byte 4)"),
    ],
)
def test_invalid_json_refuses_the_body(body: bytes, detail: str) -> None:
    """Nothing of the body counts."""
    with pytest.raises(ProblemError) as caught:
        decode_structured(body)
    assert (caught.value.code, caught.value.detail) == ("malformed_body", detail)


@pytest.mark.parametrize("event", [b'{"id":', b"NaN", rb'"\ud800"', b"[" * 10_000])
def test_invalid_json_in_a_batch_refuses_the_batch(event: bytes) -> None:
    """The ends of events in invalid JSON are unknown."""
    with pytest.raises(ProblemError, match="malformed_body"):
        decode_batch(b"[" + as_json({}) + b"," + event + b"]", 10)


@pytest.mark.parametrize("body", [as_json({}), b"1", b'"[]"', b"null"])
def test_a_batch_must_be_an_array(body: bytes) -> None:
    """A single event has its own media type."""
    with pytest.raises(ProblemError, match="malformed_body: a batch must be a JSON array"):
        decode_batch(body, 10)


def test_the_number_of_events_is_limited() -> None:
    """Both valid and invalid events count towards the limit. A body with one event too many is refused."""
    body = b"[" + b",".join([as_json({}), b"1"] * 3) + b"]"
    assert len(decode_batch(body, 6).events) == 3
    with pytest.raises(ProblemError, match="more than 5 events in one body"):
        decode_batch(body, 5)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.binary(max_size=60)
    | st.text(max_size=40).map(str.encode)
    | st.from_regex(rb'[\[{"id:1,}\]\s]{1,30}')
    | st.lists(scraps | st.dictionaries(st.sampled_from([*EVENT, "time", "x"]), scraps)).map(json.dumps).map(str.encode)
)
def test_any_bytes_give_a_body_or_a_problem(body: bytes) -> None:
    """Decoders raise no error but `ProblemError`, and every event is either valid or refused."""
    for decode in (decode_structured, lambda body: decode_batch(body, 5)):
        with suppress(ProblemError):
            decoded = decode(body)
            indexes = [*decoded.indexes, *(rejection.index for rejection in decoded.rejections)]
            assert sorted(indexes) == list(range(len(indexes)))
            assert all(rejection.detail.encode() for rejection in decoded.rejections)
