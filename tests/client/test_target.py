"""URLs and API keys are checked before anything is sent, and no message repeats a secret."""

import pytest

from live.client.target import access_refused, authorization, parse_api_key, parse_url, producer_of
from live.client.watching import live_url


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "https://board.example", "http://[::1]:80", "http://h/live"])
def test_a_url_has_no_slash_at_its_end(url: str) -> None:
    """A path can then be appended to the URL."""
    assert parse_url(url) == parse_url(f"{url}/") == url


@pytest.mark.parametrize(
    "url", ["", "h", "h:80", "ftp://h", "http://", "http://:80", "http://h:0", "http://h:99999", "http://h:x"]
)
def test_a_malformed_url_is_refused(url: str) -> None:
    """The message shows a correct URL."""
    with pytest.raises(ValueError, match=r"is not a URL such as http://127\.0\.0\.1:8000"):
        parse_url(url)


@pytest.mark.parametrize("url", ["http://me:sesame@h", "http://sesame@h", "ftp://me:sesame@h", "http://me:ses#ame@h"])
def test_a_url_with_user_information_is_refused(url: str) -> None:
    """A server takes an API key instead. The message does not repeat what may be a secret."""
    with pytest.raises(ValueError, match="no user name and no password") as raised:
        parse_url(url)
    assert "ses" not in str(raised.value)


def test_an_api_key_is_sent_without_its_line_end() -> None:
    """A file with the key may end with a line end. Without an API key, the client sends no header."""
    assert parse_api_key(" shop.a.b_c-\n") == "shop.a.b_c-"
    assert parse_api_key(None) is None
    assert authorization("shop.a") == {"Authorization": "Bearer shop.a"}
    assert authorization(None) == {}
    assert (producer_of("shop.a.b"), producer_of(None)) == ("shop", "")


def test_a_server_below_a_path_is_watched_below_it() -> None:
    """The URL of a socket begins with the path of the server's URL, and asks for TLS if the server's URL does."""
    assert live_url("http://h:1/live", "x") == "ws://h:1/live/v1/boards/x/live"
    assert live_url("https://h", "x", limit=1, interval=None) == "wss://h/v1/boards/x/live?limit=1"


@pytest.mark.parametrize(
    "key", ["", "sesame", "shop.", ".sesame", "Shop.sesame", "shop.ses ame", "shop.sesame\r\nX: y", "shop.sésame"]
)
def test_a_malformed_api_key_is_not_repeated(key: str) -> None:
    """Malformed text may still be a secret."""
    with pytest.raises(ValueError, match=r"is not of the form ID\.SECRET") as raised:
        parse_api_key(key)
    assert "sesame" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"detail":1}', b"\xff", b'{"detail":"so"}'])
@pytest.mark.parametrize(
    ("status", "key", "advice"),
    [
        (401, None, "set LIVE_KEY or pass ID.SECRET"),
        (401, "shop.sesame", "`live keys add shop`"),
        (403, "shop.sesame", "`live keys add shop --verbs post`"),
        (403, None, "`live keys add ID --verbs post`"),
    ],
)
def test_a_refused_api_key_gives_advice(status: int, key: str | None, advice: str, body: bytes) -> None:
    """The error has advice whatever the server's answer looks like."""
    error = access_refused(status, body, key)
    assert advice in str(error)
    assert (error.status, error.detail) == (status, "so" if b"so" in body else "")
    assert str(status) in str(error)
    assert "sesame" not in str(error)
    assert (": so)" in str(error)) == (b"so" in body)
