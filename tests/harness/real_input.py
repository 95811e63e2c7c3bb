"""Real input: 10,000 requests to a web site over 84 hours."""

import gzip
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

REAL_INPUT: Final = Path(__file__).parents[3] / "shared" / "data" / "site-requests.ndjson.gz"


def load() -> list[dict[str, Any]]:
    """The events of the file, in order."""
    return [msgspec.json.decode(line) for line in gzip.open(REAL_INPUT)]


def seconds(event: dict[str, Any]) -> int:
    """The time of an event."""
    return int(datetime.fromisoformat(event["time"]).timestamp())
