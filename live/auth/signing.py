"""Signs viewer tokens, for commands and for the admin page."""

import time

from live.domain.event import key_fault
from live.domain.window import parse_duration
from live.errors import SetupError
from live.settings import Settings


def sign_token(settings: Settings, boards: tuple[str, ...], length: str, key: str | None) -> tuple[str, int]:
    """Sign a token. Return it and when it ends, in seconds since 1970.

    Raises:
        SetupError: there is no secret.
        ValueError: the time or the member is not valid. The message begins with `for` or `key`.
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
    if not 1 <= seconds <= settings.token_max_age:
        raise ValueError(f"for must be a time from 1s to {settings.token_max_age:g}s (LIVE_TOKEN_MAX_AGE), such as 8h")
    if key is not None and (fault := key_fault(key)) is not None:
        raise ValueError(f"key can't be a member: {fault}")
    now = int(time.time())
    claims = {
        "aud": settings.token_audience,
        **({"iss": settings.token_issuer} if settings.token_issuer else {}),
        **({} if key is None else {"key": key}),
        "iat": now,
        "exp": now + int(seconds),
        "boards": boards,
    }
    return jwt.encode(claims, settings.token_secret, "HS256"), now + int(seconds)
