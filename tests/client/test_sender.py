"""What senders share: addresses and keys are checked before anything is sent, and a secret is not repeated."""

import pytest

from live.client.sender import authorization, check_address, check_key, key_refused, producer_of
from live.errors import SetupError


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "https://board.example", "http://[::1]:80", "http://h/live"])
def test_an_address_has_no_slash_at_its_end(url: str) -> None:
    """So that a path can be put behind it."""
    assert check_address(url) == check_address(f"{url}/") == url


@pytest.mark.parametrize(
    "url", ["", "h", "h:80", "ftp://h", "http://", "http://:80", "http://h:0", "http://h:99999", "http://h:x"]
)
def test_what_is_no_address_is_told(url: str) -> None:
    """With one that is."""
    with pytest.raises(SetupError, match=r"is not an address such as http://127\.0\.0\.1:8000"):
        check_address(url)


def test_a_key_is_sent_as_it_was_made() -> None:
    """The end of a line of a file is none of it; no key is no header."""
    assert check_key(" shop.a.b_c-\n") == "shop.a.b_c-"
    assert check_key(None) is None
    assert authorization("shop.a") == {"Authorization": "Bearer shop.a"}
    assert authorization(None) == {}
    assert (producer_of("shop.a.b"), producer_of(None)) == ("shop", "")


@pytest.mark.parametrize(
    "key", ["", "sesame", "shop.", ".sesame", "Shop.sesame", "shop.ses ame", "shop.sesame\r\nX: y", "shop.sésame"]
)
def test_what_is_no_key_is_not_repeated(key: str) -> None:
    """It may be a secret all the same."""
    with pytest.raises(SetupError, match=r"is not of the form <id>\.<secret>") as told:
        check_key(key)
    assert "sesame" not in str(told.value)
    assert told.value.__cause__ is None


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"detail":1}', b"\xff", b'{"detail":"so"}'])
@pytest.mark.parametrize(
    ("status", "key", "told"),
    [
        (401, None, "set LIVE_KEY, or give --key"),
        (401, "shop.sesame", "`live keys add shop`"),
        (403, "shop.sesame", "`live keys add shop --verbs post`"),
        (403, None, "`live keys add ID --verbs post`"),
    ],
)
def test_a_refused_key_says_what_to_do(status: int, key: str | None, told: str, body: bytes) -> None:
    """Whatever the answer looks like."""
    message = str(key_refused(status, body, key))
    assert told in message
    assert str(status) in message
    assert "sesame" not in message
    assert (": so)" in message) == (b"so" in body)
