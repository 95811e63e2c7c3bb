"""URLs with user names and passwords: what is refused, and what messages show."""

from typing import Any, Final

import pytest

from live.domain.urls import check_url, scrubbed, shown

PASSWORD: Final = "s3c{}ret"  # noqa: S105
SCHEMES: Final = ["redis", "rediss", "postgresql"]
READERS_DISAGREE: Final = ["#", "@", "/", "?"]


@pytest.mark.parametrize("character", READERS_DISAGREE)
@pytest.mark.parametrize("url", ["redis://:{}@h:1/0", "rediss://me:{}@h", "postgresql://me:{}@h:5432/db"])
def test_a_password_with_a_character_of_urls_is_refused(url: str, character: str) -> None:
    """The message says to percent-encode the password.

    Neither the message nor the shown URL has any part of the password.
    """
    text = url.format(PASSWORD.format(character))
    with pytest.raises(ValueError, match=r"percent-encode the characters @ / [?] # % and :") as caught:
        check_url(text, SCHEMES)
    assert_hidden(f"{caught.value} {shown(text)}")


@pytest.mark.parametrize("url", ["redis://:s3cret", "redis://:s3c#ret", "redis://:s3c/ret", "postgresql://me:s3cret"])
def test_a_url_without_its_host_is_refused(url: str) -> None:
    """The text in the place of the port may be the password."""
    with pytest.raises(ValueError, match="percent-encode") as caught:
        check_url(url, SCHEMES)
    assert_hidden(f"{caught.value} {shown(url)}")


def assert_hidden(text: str) -> None:
    """Check that a text has no part of the password."""
    assert "s3c" not in text
    assert "ret" not in text


@pytest.mark.parametrize("character", READERS_DISAGREE)
def test_a_percent_encoded_password_is_accepted(character: str) -> None:
    """Messages show where the URL leads."""
    url = f"redis://me:s3c%{ord(character):02X}ret@h:1/0?db=1&password=s3cret"
    check_url(url, SCHEMES)
    assert shown(url) == "redis://h:1/0"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://me@h", "redis://h"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
        ("unix://me:secret@/run/valkey.sock?db=1", "unix:///run/valkey.sock"),
        ("postgresql://me@/board?host=/run", "postgresql:///board"),
        ("redis://:secret@[::1", "redis://…"),
        ("redis://::1", "redis://…"),
        ("redis://me:secret", "redis://…"),
        ("me:secret@h", "…"),
        ("", "…"),
    ],
)
def test_messages_show_no_user_information(url: str, expected: str) -> None:
    """Messages show where a URL leads. For a refused URL, they show only its scheme."""
    assert shown(url) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('password authentication failed for user "alice"', 'password authentication failed for user "***"'),
        ("user alice with s3c#ret", "user *** with ***"),
        ("user alice with s3c%23ret", "user *** with ***"),
        ("alices", "alices"),
        ("", ""),
    ],
)
def test_errors_of_drivers_are_scrubbed(text: str, expected: str) -> None:
    """No error has the user name or the password, percent-encoded or not."""
    assert scrubbed(text, "postgresql://alice:s3c%23ret@h/db") == expected


def test_user_information_in_options_is_scrubbed() -> None:
    """The options of a URL can also have a user name and a password."""
    assert scrubbed("alice, s3c#ret", "postgresql://h/db?user=alice&password=s3c%23ret") == "***, ***"


def test_a_url_is_refused_in_reasonable_time() -> None:
    """The patterns do not backtrack."""
    text: Any = "redis://" + ":@" * 50_000
    with pytest.raises(ValueError, match="percent-encode"):
        check_url(text, SCHEMES)


def test_another_scheme_is_refused() -> None:
    """The message lists the possible schemes."""
    for url in ("http://h", "h:6379", "", "REDIS://h"):
        with pytest.raises(ValueError, match=r"^expected redis://… or unix://…$"):
            check_url(url, ["redis", "unix"])
