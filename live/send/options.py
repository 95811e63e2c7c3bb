"""The options of a run."""

from pathlib import Path

import msgspec

from live.client.target import parse_api_key, parse_url
from live.errors import SetupError


class SendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The input and the target of a run.

    `speed` is a factor on the pace of the events; None sends as fast as the server counts. `key` is the API key, if the
    server requires one. With `ids`, each event without an id gets one.
    """

    path: Path
    url: str
    board: str | None = None
    speed: float | None = None
    restart: bool = False
    key: str | None = None
    ids: bool = True


def make_options(
    *, path: Path, url: str, board: str | None, speed: str, restart: bool, key: str | None, ids: bool
) -> SendOptions:
    """Build the options from flags.

    Raises:
        SetupError: the URL, the API key or the speed is malformed.
    """
    try:
        return SendOptions(
            path=path, url=parse_url(url), board=board, speed=parse_speed(speed), restart=restart,
            key=parse_api_key(key), ids=ids,
        )  # fmt: skip
    except ValueError as error:
        raise SetupError(str(error)) from None


def parse_speed(text: str) -> float | None:
    """Parse a factor on the pace of the events; None for `max`.

    Raises:
        ValueError: the text is neither a positive number nor `max`.
    """
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0
    if not 0 < speed < float("inf"):
        raise ValueError(f"--speed {text!r}: expected a number such as 60, or max")
    return speed
