"""File descriptors: every connection takes one, and a process that has none left can serve nobody."""

import resource
from typing import Final

import msgspec
import structlog

from live.errors import SetupError
from live.settings import Settings

RESERVED: Final = 128  # for listeners, files, pipes, refusals and requests about health
_LEAST: Final = 64  # connections without which it is not worth starting

log = structlog.get_logger()


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard limit, which is as far as it may; returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def fit(settings: Settings, available: int) -> Settings:
    """Settings under which connections and viewers never take the descriptors of the store, producers and health.

    Connections are asked for first: viewers get what is left, and at least half.

    Raises:
        SetupError: there are too few for any service.
    """
    budget = available - RESERVED - settings.store_connections
    if budget < _LEAST:
        raise SetupError(
            f"a process may open {available} files, and needs {available - budget + _LEAST}: raise the limit, for "
            "example with `ulimit -n 65536`, LimitNOFILE= in a systemd unit, or `ulimits` in compose"
        )
    if settings.max_connections + settings.max_viewers <= budget:
        return settings
    connections = min(settings.max_connections, max(budget // 2, budget - settings.max_viewers))
    viewers = min(settings.max_viewers, budget - connections)
    log.warning(
        "there are fewer file descriptors than the limits on connections ask for; the limits are lowered",
        descriptors=available,
        max_connections=connections,
        max_viewers=viewers,
        advice="raise the limit of open files (ulimit -n, LimitNOFILE=), or lower the settings",
    )
    return msgspec.structs.replace(settings, max_connections=connections, max_viewers=viewers)
