"""Origins of web pages, as browsers send them in the `Origin` header. No I/O."""

import re
from typing import Final

from live.network.hosts import parse_authority

_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_PORTS: Final = {"http": ":80", "https": ":443"}  # browsers leave these out


def check_origin(text: str) -> str:
    """Check an origin: scheme, host and port in lower case, without a path and without the default port.

    Raises:
        ValueError: no browser sends this text as an origin. The message says what to write.
    """
    if text == "*":
        raise ValueError("`*` is not allowed; list each origin whose pages may connect, such as https://example.org")
    parts = _PARTS.fullmatch(text)
    authority = parse_authority(parts[2]) if parts else None
    if parts is None or authority is None:
        raise ValueError(f"{text!r} is not an origin; expected scheme, host and port, such as https://example.org:8443")
    scheme = parts[1].lower()
    canonical = f"{scheme}://{authority.text.removesuffix(_PORTS.get(scheme, ' '))}"
    if canonical != text:
        raise ValueError(f"{text!r} is not what browsers send as an origin; write {canonical}")
    return text
