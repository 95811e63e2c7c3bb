"""Events: their defaults, and the texts that they may have as `key`."""

import pytest
from msgspec import UNSET

from live.domain.event import MAX_MEMBER_BYTES, IncomingEvent, entry_of, event_fault, make_entry, member_fault


def test_omitted_fields_have_defaults() -> None:
    """An event without an amount has the amount 1. A missing time stays missing."""
    assert entry_of(IncomingEvent(member="a")) == make_entry("a", 1, None)
    assert entry_of(IncomingEvent(member="a", amount=0)) == make_entry("a", 0, None)
    assert IncomingEvent(member="a").type is UNSET


ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"  # a flag, and tags


@pytest.mark.parametrize(
    "member",
    ["a", "a b", "/", "</script>", "a\u00e9", "你好", "😀", "👩\u200d🚀", "\u0645\u06cc\u200c\u062e", "a\u00a0b",
     ENGLAND, f"{ENGLAND} England",
     "a" * MAX_MEMBER_BYTES, "é" * (MAX_MEMBER_BYTES // 2)],
)  # fmt: skip
def test_a_member_may_be_any_text(member: str) -> None:
    """The joiners that emoji and some scripts need are not control characters."""
    assert member_fault(member) is None


@pytest.mark.parametrize(
    ("member", "fault"),
    [
        ("", "key is empty"),
        ("a" * (MAX_MEMBER_BYTES + 1), "key has 1025 bytes; at most 1024 are allowed"),
        ("é" * 512 + "a", "key has 1025 bytes; at most 1024 are allowed"),
        ("a\nb", "key contains the control or format character U+000A"),
        ("\x00", "key contains the control or format character U+0000"),
        ("\x7f", "key contains the control or format character U+007F"),
        ("\x85", "key contains the control or format character U+0085"),
        ("\u202eevil", "key contains the control or format character U+202E"),
        ("\u2066", "key contains the control or format character U+2066"),
        ("a\u200bb", "key contains the control or format character U+200B"),
        ("\u2028", "key contains the control or format character U+2028"),
        ("\u2029", "key contains the control or format character U+2029"),
        ("\ufeff", "key contains the control or format character U+FEFF"),
        ("a\U000e0041", "key contains the control or format character U+E0041"),
        ("\U0001f3f4\U000e0067", "key contains the control or format character U+E0067"),
        (" a", "key has white space at its beginning; remove the space at its beginning"),
        ("a ", "key has white space at its end; remove the space at its end"),
        ("é\u00a0", "key has white space at its end; remove the space at its end"),
        (" ", "key has white space at its beginning; remove the space at its beginning"),
        ("e\u0301", "key is not in Unicode normalization form NFC"),
        ("\u212b", "key is not in Unicode normalization form NFC"),
    ],
)
def test_a_misleading_member_is_refused(member: str, fault: str) -> None:
    """The member has invisible characters, changes the direction of text, or is not in the normalization form NFC."""
    assert member_fault(member) == fault


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        (IncomingEvent(member="a", replaces="b"), None),
        (IncomingEvent(member="a", replaces="b", amount=2), None),
        (IncomingEvent(member="a", replaces="a"), "`replaces` and `key` are the same member"),
        (IncomingEvent(member="a", replaces=""), "`replaces`: key is empty"),
        (IncomingEvent(member="a", replaces="b\n"), "`replaces`: key contains the control or format character U+000A"),
        (IncomingEvent(member="a", replaces="b", amount=0), "`amount` must be at least 1 with `replaces`"),
        (IncomingEvent(member="a", replaces="b", amount=-1), "`amount` must be at least 1 with `replaces`"),
    ],
)
def test_a_vote_replaces_a_vote_for_another_member(event: IncomingEvent, fault: str | None) -> None:
    """The new vote is at least one vote."""
    assert event_fault(event) == (fault and ("event_invalid", fault))
