"""File descriptors: every connection needs one, and a process without free ones can serve nobody."""

import resource
from typing import Final

import msgspec
import structlog

from live.errors import SetupError
from live.settings import Settings

RESERVED: Final = 128  # for listeners, files, pipes, refused connections and health checks
_LEAST: Final = 64  # minimum number of connections to start with

log = structlog.get_logger()


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard limit. Returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def fit(settings: Settings, available: int) -> Settings:
    """Lower the limits on connections and viewers, so that descriptors remain for the store and for health checks.

    Connections get up to half of the descriptors, or more if viewers need fewer. Viewers get the rest.

    Raises:
        SetupError: there are too few descriptors to serve anything.
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
        "too few file descriptors for the configured connections and viewers; using lower limits",
        descriptors=available,
        max_connections=connections,
        max_viewers=viewers,
        advice="raise the limit of open files (ulimit -n, LimitNOFILE=), or lower the settings",
    )
    return msgspec.structs.replace(settings, max_connections=connections, max_viewers=viewers)
