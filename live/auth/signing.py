"""Signs viewer tokens, for commands and for the admin page."""

import time
from typing import Final

from live.domain.event import key_fault
from live.domain.text import character_fault
from live.domain.window import parse_duration
from live.errors import SetupError
from live.settings import Settings

# Nobody can take a single token back, so it ends within a day. `LIVE_TOKENS_SINCE` ends all of them at once.
LONGEST_TOKEN: Final = 86400  # seconds
MOST_TOKEN_BYTES: Final = 3500
"""The longest token that the server takes. Some browsers drop a cookie with a longer token."""

_LONGEST_SUBJECT: Final = 256  # characters; the `actor` of an event may have as many


def voter_fault(voter: str | None) -> str | None:
    """Say what is wrong with the `sub` of a token that may vote, or return None."""
    if voter is None or not 0 < len(voter) <= _LONGEST_SUBJECT:
        return f"must have 1 to {_LONGEST_SUBJECT} characters"
    return None if character_fault(voter) is None else "contains a control or format character"


def sign_token(
    settings: Settings,
    boards: tuple[str, ...],
    length: str,
    key: str | None,
    likes: tuple[str, ...] = (),
    voter: str | None = None,
) -> tuple[str, int]:
    """Sign a token. Return the token and its end, in seconds since 1970.

    With `likes`, `voter` may vote on these boards.

    Raises:
        SetupError: there is no secret, no board is named, or the token is too long.
        ValueError: the time, the member or the voter is not valid. The message begins with `for`, `key` or `sub`.
    """
    import jwt  # noqa: PLC0415 - it takes a while to load

    if not settings.token_secret:
        raise SetupError(
            "LIVE_TOKEN_SECRET is not set: give the server and this command the same secret of at least 32 bytes, such "
            "as `openssl rand -hex 32` makes. Sign tokens for LIVE_TOKEN_JWKS yourself, with the private key"
        )
    try:
        seconds = parse_duration(length)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= LONGEST_TOKEN:
        raise ValueError(f"for must be a time from 1s to {LONGEST_TOKEN}s, such as 8h")
    if key is not None and (fault := key_fault(key)) is not None:
        raise ValueError(f"key can't be a member: {fault}")
    if likes and (fault := voter_fault(voter)) is not None:
        raise ValueError(f"sub names the person who votes: {fault}")
    if voter is not None and not likes:
        raise ValueError("sub needs the boards on which the person may vote")
    if not boards and not likes:
        raise SetupError("name at least one board that the token opens, or on which it votes")
    now = int(time.time())
    claims = {
        "aud": settings.token_audience,
        **({"iss": settings.token_issuer} if settings.token_issuer else {}),
        **({} if key is None else {"key": key}),
        "iat": now,
        "exp": now + int(seconds),
        **({"boards": boards} if boards else {}),
        **({"likes": likes, "sub": voter} if likes else {}),
    }
    token = jwt.encode(claims, settings.token_secret, "HS256")
    if len(token) > MOST_TOKEN_BYTES:
        most = f"the server takes {MOST_TOKEN_BYTES:,} at most"
        raise SetupError(
            f"the token has {len(token):,} bytes, and {most}: name fewer boards, or prefixes such as acme-*"
        )
    return token, now + int(seconds)
