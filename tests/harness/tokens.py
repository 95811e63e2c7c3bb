"""Viewer tokens, signed with the secret of a server."""

import time
from typing import Any, Final

import jwt

from live.settings import TokenSecret

SECRET: Final = TokenSecret("a secret for tests, of 32 bytes or more")


def make_token(*boards: str, ends: float = 3600, secret: str = SECRET, **claims: Any) -> str:
    """Sign a token that ends in some seconds.

    `claims` are added or replace the usual claims; a claim that is None is left out.
    """
    own = {"exp": int(time.time()) + ends, "aud": "live-board", "boards": boards, **claims}
    return jwt.encode({name: value for name, value in own.items() if value is not None}, secret, "HS256")


def token_field(token: str) -> tuple[str, str]:
    """The header field that sends a token."""
    return "Authorization", f"Bearer {token}"
