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


def _described(meaning: str, buys: str, costs: str, in_words: str = "", **bounds: Any) -> Meta:  # noqa: ANN401 - of Meta
    """Describe a setting: what it means, and what a larger value, or another than the default, buys and costs."""
    extra = {"buys": buys, "costs": costs} | ({"in_words": in_words} if in_words else {})
    return Meta(description=meaning, extra=extra, **bounds)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a server process."""

    # Each setting takes one to three lines. The formatter would spread it over up to eight lines.
    # fmt: off
    host: Annotated[str, _described("address to listen on",
        "other machines reach the server",
        "beyond this machine, producers need API keys, and clients a host of `LIVE_ALLOWED_HOSTS`")] = "127.0.0.1"
    port: Annotated[int, _described("port to listen on; 0 picks a free port",
        "several servers on one machine, or the port that a proxy expects",
        "ports below 1024 need a right of the system", ge=0, le=65535)] = 8000
    store: Annotated[str, _described(
        "address of the store: `redis://…`, `unix://…`, "
        "`redis+sentinel://…` or `redis+cluster://…`, with `rediss` for TLS; "
        "without this setting, an embedded Valkey starts",
        "servers on several machines share the boards; replicas and more memory",
        "a store to run, with `appendfsync always`, and a network round trip for each batch")] = ""
    data_dir: Annotated[Path, _described(
        "directory for the data of the embedded Valkey and for the server's notes about its store",
        "a larger or faster disk",
        "moving it needs a stopped server")] = Path("live-data")
    store_memory: Annotated[Size, _described(
        "memory limit of the embedded Valkey; 0 uses half of the machine's or container's memory",
        "more members and longer windows",
        "memory that other programs lack; while the store writes a new file, it can need twice as much")] = Size(0)
    journal: Annotated[str, _described(
        "SQL database of the journal: `sqlite` is a file in the data directory, `postgresql://…` a server, "
        "and `off` keeps no journal",
        "rebuilding a lost store, the past, and exports",
        "about 3 MB of disk for a million events; PostgreSQL is a server to run")] = "sqlite"
    journal_ack: Annotated[bool, _described(
        "acknowledge events only when they are in the journal's database too, so that they are on two disks",
        "no acknowledged event is lost with one disk",
        "each batch also waits until SQL has committed it")] = False
    journal_backlog: Annotated[Size, _described(
        "maximum bytes of a board's journal that may wait in the store; "
        "beyond this, POST returns 503",
        "events count for longer while the database is away",
        "memory of the store for each board")] = Size(256 * 1024**2)
    journal_events: Annotated[Retention, _described(
        "how long the journal keeps every event",
        "a longer past with every event",
        "disk, in proportion to the time")] = Retention(DEFAULT_RETENTION)
    journal_periods: Annotated[Retention, _described(
        "how long the journal keeps the periods that a calendar board does not keep any more",
        "older periods stay readable",
        "disk, a row for each member of a period")] = Retention(400 * 86400)
    max_boards: Annotated[int, _described("maximum number of boards, including those in the boards file",
        "more boards",
        "memory and background work of each process for each board in use", ge=1)] = 1000
    boards: Annotated[Path | None, _described(
        "TOML file that defines the boards; without this setting, the server has a single board, `posts`",
        "boards that are kept in a file, with their history in version control",
        "a file to deliver to each server")] = None
    workers: Annotated[int, _described(
        "number of server processes; limits for clients apply to all of them together",
        "more processors for viewers and requests",
        "about 100 MB of memory for each, and a share of each limit instead of the whole", ge=1, le=64)] = 1
    role: Annotated[Literal["all", "ingest", "viewers"], _described(
        "what this process serves: `ingest` accepts events, `viewers` serves boards, `all` does both",
        "viewers can't slow down events: each has processes of its own",
        "two kinds of processes, which need one store and a proxy before them")] = "all"
    demo: Annotated[bool, _described(
        "generate sample events in one of the processes; without a boards file, also sample boards",
        "a board that moves without a producer",
        "invented events in your data directory")] = False
    open: Annotated[bool, _described("accept events without an API key, from any address",
        "producers need no API key",
        "everybody who reaches the server may send events")] = False
    allowed_hosts: Annotated[tuple[HostPattern, ...], _described(
        "host names of this server, comma-separated, such as `board.example.org` or `*.example.org`; "
        "`*` allows any",
        "the server answers under these names",
        "each name is a name that pages of others can use too, if you do not control it")] = ()
    trusted_proxies: Annotated[tuple[ProxyNetwork, ...], _described(
        "addresses and networks of proxies, comma-separated, whose `X-Forwarded-…` are trusted",
        "clients behind the proxy have limits of their own, and links begin with `https`",
        "who can send from these addresses can pretend to be any client")] = ()
    root_path: Annotated[RootPath, _described(
        "path prefix under which a proxy serves this server, such as `/live`",
        "one host for several applications",
        "the proxy must cut the prefix off")] = RootPath()
    anonymous_admin: Annotated[bool, _described(
        "let programs on this machine change boards without an API key, as long as they may post without one; "
        "this never applies through a proxy or under another host name",
        "scripts on this machine need no API key",
        "each program and user of this machine may delete boards")] = False
    visibility: Annotated[Literal["public", "private"], _described(
        "who may read a board whose definition has no `visibility`: everybody, or only clients with an API key for it",
        "no board is public by mistake",
        "each viewer needs an API key or a token, and no cache can answer for the server"
    )] = "public"
    token_secret: Annotated[TokenSecret, _described(
        "secret of at least 32 bytes with which viewer tokens are signed (HS256); without it, and without "
        "`LIVE_TOKEN_JWKS`, the server takes no tokens",
        "your application decides who may watch and vote",
        "whoever has the secret can sign tokens for everything")] = TokenSecret()
    token_jwks: Annotated[TokenKeys, _described(
        "file or `https` address of the public keys with which viewer tokens are checked "
        "(a JSON Web Key Set for RS256, ES256 or EdDSA)",
        "tokens of an identity provider, and no secret on the server",
        "events and pages depend on the address when keys change")] = TokenKeys()
    token_audience: Annotated[str, _described("what `aud` of a viewer token must be",
        "tokens for other applications of the same signer are refused",
        "signers must name it", min_length=1)] = "live-board"  # noqa: S105 - no password
    token_issuer: Annotated[str, _described("what `iss` of a viewer token must be; empty allows any",
        "tokens of other signers with the same keys are refused",
        "signers must name it")] = ""
    tokens_since: Annotated[Instant, _described(
        "viewer tokens that were signed before this time are refused, such as `2026-11-24T12:00:00Z`; "
        "with this setting, every token needs `iat`",
        "all stolen tokens end at once",
        "everybody needs a new token")] = Instant()
    metrics: Annotated[Literal["auto", "open", "key", "off"], _described(
        "who may read `/metrics`: everybody, API keys with the verb `read` or `admin`, or nobody; "
        "`auto` is `key` on a server with a private board, and `open` on any other",
        "a monitor without an API key",
        "`open` tells everybody the load and the names of boards")] = "auto"
    admin_page: Annotated[Literal["off", "local", "on"], _described(
        "which browsers may open the admin page: none, those on this machine that use no proxy, or all; each person "
        "signs in with an admin API key, and browsers on other machines need TLS",
        "moderation and API keys in a browser",
        "with `on`, a stolen admin API key works from everywhere")] = "local"
    rate: Annotated[int, _described(
        "events per second for a producer that has no rate of its own; 0 means no limit",
        "one producer can't use up the server",
        "a producer above it waits; a high value lets one producer delay the others", ge=0)] = 100_000
    read_rate: Annotated[int, _described(
        "read requests per second of one API key, or of one address (or IPv6 /64 network) without an API key; "
        "0 means no limit",
        "one client can't use up the server",
        "many people behind one address share it; a high value lets one client delay the others", ge=0)] = 5000
    like_rate: Annotated[int, _described(
        "likes per second that one address (or IPv6 /64 network) may send with the like buttons of pages; "
        "0 means no limit. A voter with a viewer token has a limit of its own, which is the same",
        "a hall of phones behind one address can vote at once",
        "one person with many cookies can vote as often", ge=0)] = 50
    key_prefix: Annotated[str, _described(
        "prefix of every store key",
        "several installations in one store",
        "each prefix has boards, API keys and a journal of its own", pattern="^[a-z0-9_-]{1,32}$",
        in_words="1 to 32 of a-z, 0-9, - and _, such as live-2")] = "live"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _described(
        "lowest severity to log; repeated warnings are counted and logged once every 10 seconds",
        "`debug` shows why something happens",
        "more lines, and more time for each request")] = "info"

    max_connections: Annotated[int, _described(
        "maximum HTTP connections, not counting viewers; one address (or IPv6 /64 network) may have half",
        "more clients that send and read at once",
        "a file descriptor and memory for each", ge=1)] = 4096
    max_unread: Annotated[int, _described(
        "maximum bytes of responses that clients have not read yet",
        "slow clients keep their connections",
        "memory of the process", ge=65536)] = 256 * 1024 * 1024
    max_unanswered: Annotated[int, _described(
        "maximum bytes of bodies that are not answered yet, at most half of them from one address; "
        "beyond this, the server reads no more",
        "more large bodies at once",
        "memory of the process", ge=65536)] = 128 * 1024 * 1024
    idle_timeout: Annotated[Duration, _described("how long a connection may stay idle between requests",
        "fewer handshakes; longer than that of the proxy in front",
        "places in `max_connections` for clients that may never come back")] = Duration(60)
    max_body: Annotated[int, _described(
        "maximum bytes of a POST body, after decompression; a body of 1 MiB can hold up the other clients of a process "
        "for 50 ms",
        "larger batches",
        "a body of 1 MiB can hold up the other clients of a process for 50 ms", ge=1)] = 256 * 1024
    dedupe_window: Annotated[Duration, _described(
        "minimum time for which an event's id is remembered",
        "an event that is sent again later still counts once",
        "about 40 bytes of the store for each event with an id")] = Duration(86400)
    store_timeout: Annotated[Duration, _described(
        "how long to wait for a reply of the store; if the store owes replies and sends nothing for three times as "
        "long, the server closes the connection",
        "a store that is far away or slow still counts",
        "a dead store is noticed later, and requests wait for it")] = Duration(1)
    write_deadline: Annotated[Duration, _described(
        "how long a write is retried before POST returns 503; "
        "the default is `8s` with Sentinels or a Cluster, and `2s` otherwise",
        "a failover that takes longer refuses no event",
        "requests wait longer before they are refused")] = Duration(0)
    wait_replicas: Annotated[int, _described(
        "number of replicas that must hold a write before it is acknowledged; "
        "the default is 1 with Sentinels or a Cluster, and 0 otherwise",
        "an event survives the loss of as many stores",
        "a network round trip for each batch; too few replicas stop all events", ge=0, le=5)] = -1

    cache: Annotated[CacheTime, _described(
        "how long proxies, CDNs and browsers may answer reads of boards without asking the server; "
        "`off` makes them ask each time",
        "a CDN answers most reads",
        "readers see a board that is as much older")] = CacheTime(0)

    rotation_step: Annotated[int, _described("members of a slot to subtract per script call",
        "old slots of large boards leave sooner",
        "longer script calls, which delay events: 64 members take about 1 ms", ge=1, le=2000)] = 64

    conflation_interval: Annotated[Duration, _described(
        "minimum time between two messages to a viewer",
        "viewers see a change sooner",
        "more messages, each of which takes processor time and bandwidth")] = Duration(0.1)
    max_viewers: Annotated[int, _described("maximum viewers; one address (or IPv6 /64 network) may have half",
        "more people watch at once",
        "a file descriptor and 1.9 KB for each, and processor time for each message", ge=0)] = 20_000
    max_board_viewers: Annotated[int, _described("maximum viewers of one board",
        "one board may be more popular",
        "it can take the places of the viewers of other boards", ge=0)] = 20_000
    slow_timeout: Annotated[Duration, _described(
        "a viewer that reads nothing for this long is disconnected",
        "viewers with a bad connection stay",
        "places and buffers for viewers that are gone")] = Duration(15)
    max_items: Annotated[int, _described("maximum number of members that have a title",
        "more members with titles and pictures",
        "memory in the store and in each process for each title", ge=0)] = 100_000
    image_hosts: Annotated[tuple[HostPattern, ...], _described(
        "hosts of the pictures of members, comma-separated, such as `img.example.org` or `*.example.org`",
        "pictures beside the names",
        "these hosts learn the addresses of your viewers")] = ()
    allowed_origins: Annotated[tuple[Origin, ...], _described(
        "additional origins whose pages may watch boards and vote with viewer tokens, comma-separated; the "
        "server's own origin always may",
        "boards on pages of other sites",
        "these pages can vote for their visitors who have a token")] = ()
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
