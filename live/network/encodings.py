"""Which content encodings a client accepts."""

import re
from collections.abc import Iterable
from typing import Final

_NAMES: Final = ("gzip", "x-gzip", "*")  # if a client names several of these, the first in this order counts
_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def takes_gzip(accepted: Iterable[str]) -> bool:
    """Tell whether to send gzip to a client. `accepted` has its `Accept-Encoding` fields (RFC 9110, section 12.5.3).

    A client that names neither gzip nor `*`, or that prefers `identity`, receives plain responses.
    """
    weights: dict[str, float] = {}
    for part in ",".join(accepted).lower().split(","):
        coding, _, parameter = part.partition(";")
        weight = _WEIGHT.fullmatch(parameter.strip())
        # An invalid weight counts as 0: not acceptable.
        weights[coding.strip()] = float(weight[1]) if weight else float(not parameter.strip())
    gzip = next((weights[name] for name in _NAMES if name in weights), 0.0)
    return gzip > 0 and gzip >= weights.get("identity", 0.0)
