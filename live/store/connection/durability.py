"""The files of the store: warn of settings that can lose acknowledged events, and rewrite files with deleted data."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from live.domain.text import counted
from live.errors import SetupError, StoreUnavailableError
from live.store.connection.client import Store
from live.store.connection.handshake import info_fields
from live.store.connection.pipelined import reason_of

_REPLICAS: Final = (
    "the store has {}. Replicas copy with a delay: if one takes over, acknowledged events that it does not have yet "
    "are lost, apart from those that are in the journal. Set LIVE_WAIT_REPLICAS to 1 to wait for one of them"
)
_TOO_FEW: Final = "the store has {}, and LIVE_WAIT_REPLICAS is {}: no write is acknowledged until it has as many"
_POLL: Final = 0.1  # seconds
_BUSY: Final = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")


async def unsafe_settings(client: Store) -> list[str]:
    """Return a warning for each setting of the store that can lose acknowledged events, and for too few replicas.

    The settings of replicas count where Sentinels or a Cluster may make one of them the primary.

    Raises:
        SetupError: the store may evict store keys, which would corrupt rankings silently (I7).
    """
    replication = await client.each("INFO", "replication")
    _require_answer(replication)
    shown = await client.each("CONFIG", "GET", "*", replicas=True)
    _require_answer(shown[: len(replication)])
    replication = [(server, reply) for server, reply in replication if not _is_away(reply)]
    warnings: dict[str, list[str]] = {}  # for each warning, the servers to which it applies
    for server, settings in shown:
        for line in _unsafe(settings):
            warnings.setdefault(line, []).append(server)
    lines = [line if servers == [""] else f"{', '.join(servers)}: {line}" for line, servers in warnings.items()]
    refusals = [reply for _, reply in replication if isinstance(reply, Exception)]
    replicas = {
        server: int(info_fields(reply).get("connected_slaves", "0"))
        for server, reply in replication
        if not isinstance(reply, Exception)
    }
    awaited = client.servers.settings.wait_replicas
    if refusals:
        lines.append(f"the store does not show whether it has replicas ({reason_of(refusals[0])})")
        if client.servers.promotes:
            lines.append(
                "without INFO, boards are not checked after a failover: they continue with the data of the new primary"
            )
    elif not awaited and any(replicas.values()):
        lines.append(_REPLICAS.format(counted(sum(replicas.values()), "replica")))
    for server, count in replicas.items():
        if count < awaited:
            line = _TOO_FEW.format(counted(count, "replica"), awaited)
            lines.append(f"{server}: {line}" if server else line)
    return lines


def _require_answer(replies: Sequence[tuple[str, Any]]) -> None:
    away = [reply for _, reply in replies if _is_away(reply)]
    if away and len(away) == len(replies):
        raise StoreUnavailableError(reason_of(away[0])) from away[0]


def _is_away(reply: object) -> bool:
    """Return whether a server gave no answer, or can't answer now.

    A server that does not permit a command does answer: managed services forbid some commands.
    """
    if isinstance(reply, NoPermissionError) or (isinstance(reply, ResponseError) and "unknown command" in str(reply)):
        return False
    return isinstance(reply, Exception)


def _unsafe(settings: Any) -> Iterator[str]:  # noqa: ANN401 - any reply
    """Yield warnings. `settings` is the server's reply to CONFIG GET, or an error."""
    if isinstance(settings, Exception):
        yield (
            f"the store does not show its settings ({reason_of(settings)}); "
            "check appendonly, appendfsync, maxmemory-policy"
        )
        return
    pairs = zip(settings[::2], settings[1::2], strict=True)
    held = {name.decode(): value.decode(errors="replace") for name, value in pairs}
    policy = held.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise SetupError(
            f"the store's maxmemory-policy is {policy}: it may evict slots, and rankings would stay wrong. "
            "Set it to noeviction."
        )
    if held.get("appendonly") != "yes":
        yield "the store has no append-only file (appendonly no): a crash loses acknowledged events"
    elif held.get("appendfsync") != "always":
        yield (
            f"the store's appendfsync is {held.get('appendfsync')}, not always: a power cut loses acknowledged events"
        )
    if held.get("no-appendfsync-on-rewrite") == "yes":
        yield (
            "the store does not fsync during a rewrite (no-appendfsync-on-rewrite yes): "
            "a power cut then loses acknowledged events. Set it to no"
        )


async def rewrite_log(client: Store) -> str:
    """Make all servers of the store rewrite their append-only files, and wait until they have.

    Return what the operator must still do; empty if nothing is left to do.
    """
    try:
        states = await _settled(client)
        if not all(state.get("aof_enabled") == "1" for state in states):
            return "the store has no append-only file: delete its older snapshots, and make a new one with BGSAVE"
        for _, reply in await client.each("BGREWRITEAOF", replicas=True):
            if isinstance(reply, Exception):
                raise reply
        states = await _settled(client)
    except ResponseError as error:
        return f"the store does not let this user rewrite its files ({reason_of(error)}): run BGREWRITEAOF yourself"
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(reason_of(error)) from error
    if any(state.get("aof_last_bgrewrite_status") != "ok" for state in states):
        raise StoreUnavailableError("it could not rewrite its append-only file; its log says why")
    return ""


async def _settled(client: Store) -> list[dict[str, str]]:
    """Wait until no server writes a file: an unfinished file may hold deleted data."""
    while True:
        states = []
        for _, reply in await client.each("INFO", "persistence", replicas=True):
            if isinstance(reply, Exception):
                raise reply
            states.append(info_fields(reply))
        if not any(state.get(name, "0") != "0" for state in states for name in _BUSY):
            return states
        await asyncio.sleep(_POLL)
