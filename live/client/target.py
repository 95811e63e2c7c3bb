"""The server and the API key of a client. Both are checked before anything is sent."""

from typing import Final
from urllib.parse import urlsplit

from live.client.errors import AccessRefusedError, ServerUnavailableError, read_problem
from live.domain.producer import parse_bearer

ACCESS_REFUSED: Final = frozenset({401, 403})
_FORBIDDEN: Final = 403
_PATIENCE: Final = 60.0  # seconds for which a server may be unavailable
_FIRST_PATIENCE: Final = 5.0  # seconds for which a server may be unavailable that has never answered


class Patience:
    """How many seconds a server may be unavailable. The parts of a client share it.

    The default is short until the server has answered, because the address may be wrong.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.has_answer = False
        self._seconds = seconds

    @property
    def seconds(self) -> float:
        """The chosen number of seconds, or a default, which depends on whether the server has ever answered."""
        if self._seconds is not None:
            return self._seconds
        return _PATIENCE if self.has_answer else _FIRST_PATIENCE

    def over(self, url: str, problem: str, *, in_doubt: bool = False) -> ServerUnavailableError:
        """Make the error of a server that was unavailable for too long."""
        message = f"{url} stays unavailable ({problem})"
        if not self.has_answer:
            advice = "check the address and the port, which `live serve` prints"
            message = f"no Live Board server answers at {url} ({problem}): {advice}"
        return ServerUnavailableError(message, in_doubt=in_doubt)


def parse_url(url: str) -> str:
    """Check the base URL of a server, and drop a trailing slash."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        valid = False
    if "@" in url:
        raise ValueError("the URL of a server has no user name and no password: a server takes an API key instead")
    if not valid:
        raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8000")
    return url.rstrip("/")


def parse_api_key(api_key: str | None) -> str | None:
    """Check an API key, and strip white space such as the line end of a file. Return None if there is no API key."""
    if api_key is None:
        return None
    api_key = api_key.strip()
    if parse_bearer(f"Bearer {api_key}".encode()) is None:
        raise ValueError("the API key is not of the form ID.SECRET, as `live keys add` prints it")
    return api_key


def producer_of(api_key: str | None) -> str:
    """Return the id of the producer, the public part of its API key. Without an API key, it is empty."""
    return "" if api_key is None else api_key.partition(".")[0]


def authorization(api_key: str | None) -> dict[str, str]:
    """Return the headers that carry an API key."""
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


def access_refused(status: int, body: bytes, api_key: str | None, verb: str = "post") -> AccessRefusedError:
    """Make the error for a refused request that needs a verb. Its message gives advice, and never shows the secret."""
    detail = read_problem(body).detail
    producer = producer_of(api_key)
    if status == _FORBIDDEN:
        who = f"producer {producer!r}" if producer else "requests without an API key"
        problem = f"the server does not allow this for {who}"
        advice = (
            f"to create an API key that may do it, run `live keys add {producer or 'ID'} --verbs {verb}` "
            "where the server's store is"
        )
    elif api_key is None:
        problem = "the server requires an API key"
        advice = "set LIVE_KEY or pass ID.SECRET; to create one, run `live keys add ID` where the server's store is"
    else:
        problem = f"the server does not accept this API key of producer {producer!r}"
        advice = (
            f"where the server's store is, `live keys list` lists the API keys and `live keys add {producer}` creates "
            "another; the server accepts a new one within two seconds"
        )
    return AccessRefusedError(status, body, f"{problem} ({status}{f': {detail}' if detail else ''}): {advice}")
