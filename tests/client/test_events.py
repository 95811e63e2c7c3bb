"""Events as a client encodes them."""

from typing import Any

import msgspec
import pytest

from live.client.events import MAX_EVENT_BYTES, Event, encode_event, with_identity
from live.client.sender import MAX_BYTES
from live.settings import Settings


def test_an_event_may_have_64_kib() -> None:
    """One byte more is refused, before anything is sent."""
    empty = len(encode_event(Event("")))
    assert len(encode_event(Event("a" * (64 * 1024 - empty)))) == 64 * 1024
    with pytest.raises(ValueError, match="the event has 65,537 bytes of JSON; at most 65,536 are allowed"):
        encode_event(Event("a" * (64 * 1024 - empty + 1)))


def test_a_full_batch_fits_into_a_body() -> None:
    """A batch ends at the first event with which it has enough bytes, and each event gets an id."""
    assert MAX_BYTES + MAX_EVENT_BYTES + 1000 * len(b"\n") < Settings().max_body


@pytest.mark.parametrize(("source", "identity"), [(None, ("run", "7")), ("shop", ("shop", "run:7"))])
def test_an_id_differs_from_other_ids_of_its_source(source: str | None, identity: tuple[str, str]) -> None:
    """An event with its own source keeps it."""
    line = with_identity(encode_event(Event("a", source=source)), b"run", 7, has_source=source is not None)
    event: dict[str, Any] = msgspec.json.decode(line)
    assert (event["source"], event["id"]) == identity
