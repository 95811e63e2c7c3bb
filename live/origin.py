"""Which pages may open a socket; a browser tells whose page it is in the header `Origin`."""

from collections.abc import Sequence

from live.errors import ProblemError


def require_origin(origin: str | None, host: str | None, allowed: Sequence[str]) -> None:
    """Let pages of our own origin and of the allowed ones pass, and clients that are no browsers.

    Raises:
        ProblemError: `origin_forbidden`. It keeps other sites' pages from using their visitors' network; it is no
            authentication.
    """
    if origin is None or origin in allowed:
        return
    scheme, _, own = origin.partition("://")
    if scheme in {"http", "https"} and own == host:
        return
    raise ProblemError("origin_forbidden", "the setting allowed_origins lists the origins that may connect")
