"""One table of settings: name, type, default, meaning. Each is the environment variable LIVE_<NAME>."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from live.errors import SetupError
from live.window import parse_duration

_LONGEST = 7 * 86400  # seconds: any setting of time beyond is a slip, and the kernel takes no more than 24 days


class Duration(float):
    """Seconds, written as `100ms`, `2s`, `24h`."""

    __slots__ = ()


def _said(meaning: str, **bounds: Any) -> Meta:  # noqa: ANN401 - the bounds of Meta, passed on
    return Meta(description=meaning, **bounds)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a server process."""

    host: Annotated[str, _said("address to listen on")] = "127.0.0.1"
    port: Annotated[int, _said("port to listen on; 0 takes a free one", ge=0, le=65535)] = 8000
    store: Annotated[str, _said("`redis://…`, `rediss://…` or `unix://…`; empty starts the embedded Valkey")] = ""
    data_dir: Annotated[Path, _said("where the embedded Valkey keeps its data")] = Path("live-data")
    boards: Annotated[Path | None, _said("TOML file of boards; without one there is the board `posts`")] = None
    workers: Annotated[int, _said("server processes", ge=1, le=64)] = 1
    role: Annotated[
        Literal["all", "ingest", "viewers"],
        _said("what this process serves: `ingest` takes events, `viewers` shows boards, `all` does both"),
    ] = "all"
    demo: Annotated[bool, _said("add made-up likes, so that a newcomer sees a board move")] = False
    open: Annotated[bool, _said("accept events without a key, from anywhere")] = False
    rate: Annotated[int, _said("events a second of a producer without a rate of its own; 0 is no limit", ge=0)] = (
        100_000
    )
    burst: Annotated[int, _said("events that such a producer may send at once", ge=1)] = 200_000
    key_prefix: Annotated[str, _said("first part of every key in the store", pattern="^[a-z0-9_-]{1,32}$")] = "live"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _said("least severe line logged")] = "info"

    max_connections: Annotated[int, _said("HTTP connections of one process, viewers not among them", ge=1)] = 4096
    request_timeout: Annotated[Duration, _said("how long a request may take to arrive, from its first byte")] = (
        Duration(8)
    )
    idle_timeout: Annotated[Duration, _said("how long a connection may be idle between requests")] = Duration(60)
    max_body: Annotated[int, _said("bytes of a POST body, unpacked", ge=1)] = 1024 * 1024
    max_events: Annotated[int, _said("events in one body", ge=1, le=3000)] = 1000
    max_future: Annotated[Duration, _said("how far ahead of the store's clock an event's time may be")] = Duration(60)
    max_waiting: Annotated[int, _said("events of a board that wait for the store before POST answers 503", ge=1)] = (
        100_000
    )
    dedupe_window: Annotated[Duration, _said("how long, at least, an event's id is known again")] = Duration(86400)
    batch_size: Annotated[int, _said("events in one script call", ge=1, le=3000)] = 1000

    commit_delay: Annotated[
        Duration, _said("how long a script call may wait for the producers that the last one has answered")
    ] = Duration(0.001)

    store_connections: Annotated[int, _said("connections to the store a process may open", ge=4)] = 16
    store_timeout: Annotated[Duration, _said("wait for one answer of the store")] = Duration(1)
    write_deadline: Annotated[Duration, _said("how long a write is retried before POST answers 503")] = Duration(2)

    rotation_interval: Annotated[Duration, _said("longest pause before a process looks for due slots")] = Duration(1)
    rotation_step: Annotated[int, _said("fields of a slot subtracted in one script call", ge=1, le=2000)] = 128

    conflation_interval: Annotated[Duration, _said("least time between two frames to a viewer")] = Duration(0.1)
    max_limit: Annotated[int, _said("records in one page of a board", ge=1, le=3000)] = 1000
    max_live_limit: Annotated[int, _said("records that a viewer may watch", ge=1, le=3000)] = 100
    history_size: Annotated[int, _said("states of a board that are known again to a viewer who comes back", ge=0)] = 100
    max_viewers: Annotated[int, _said("viewers of one process", ge=0)] = 20_000
    max_board_viewers: Annotated[int, _said("viewers of one board in one process", ge=0)] = 20_000
    max_address_viewers: Annotated[int, _said("viewers of one process from one address", ge=0)] = 10_000
    slow_timeout: Annotated[Duration, _said("how long a viewer may take nothing of what waits for it")] = Duration(15)
    allowed_origins: Annotated[
        tuple[str, ...], _said("further origins whose pages may watch, comma-separated; the own one always may")
    ] = ()
    shutdown_timeout: Annotated[Duration, _said("how long open requests may take to end at a stop")] = Duration(5)


def environment_name(setting: str) -> str:
    """The environment variable of a setting: `max_body` is `LIVE_MAX_BODY`."""
    return f"LIVE_{setting.upper()}"


def _convert(expected: type, value: Any) -> Any:  # noqa: ANN401 - the signature that msgspec asks for
    if expected is Duration:
        duration = parse_duration(value)
        if not 0 < duration <= _LONGEST:
            raise ValueError(f"{value!r} is not between 1ms and 7d")
        return Duration(duration)
    if expected is Path or expected == Path | None:
        return Path(value)
    raise TypeError(f"no setting is of type {expected}")


def load_settings(environment: Mapping[str, str] = os.environ, **given: Any) -> Settings:  # noqa: ANN401
    """Settings from flags (`given`, where not None), then the environment, then the defaults.

    Raises:
        SetupError: a value is wrong; one line for each, naming the variable.
    """
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    for field in msgspec.structs.fields(Settings):
        value: Any = given.get(field.name)
        if value is None:
            value = environment.get(environment_name(field.name))
        if value is None or value == "":
            continue
        if field.name == "allowed_origins" and isinstance(value, str):
            value = tuple(part.strip() for part in value.split(",") if part.strip())
        try:
            values[field.name] = msgspec.convert(value, field.type, strict=False, dec_hook=_convert)
        except ValueError as error:  # msgspec.ValidationError is one
            mistakes.append(f"{environment_name(field.name)} (or its flag) = {str(value)!r}: {error}")
    if mistakes:
        raise SetupError("\n".join(mistakes))
    return Settings(**values)


def as_environment(settings: Settings) -> dict[str, str]:
    """The environment from which `load_settings` makes the same settings again, for worker processes."""
    environment: dict[str, str] = {}
    for field in msgspec.structs.fields(Settings):
        value = getattr(settings, field.name)
        if isinstance(value, Duration):
            text = f"{value:.3f}s"
        elif isinstance(value, tuple):
            text = ",".join(value)
        else:
            text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        environment[environment_name(field.name)] = text
    return environment
