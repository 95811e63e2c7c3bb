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

from live.domain.board import DEFAULT_RETENTION
from live.domain.text import unknown
from live.domain.validation_messages import invalid_value
from live.domain.window import parse_duration
from live.errors import SetupError
from live.http.networks import check_network, check_origin, check_pattern, check_root_path

# `LIVE_KEY` is for `live send` and `live load`, and `LIVE_IMPORT_REDIS` for `live import`.
OTHER_VARIABLES = ("LIVE_KEY", "LIVE_IMPORT_REDIS")

_PREFIX = "LIVE_"
LEAST_MEMORY = 16 * 1024**2  # bytes; with a smaller limit, a store does not start
LONGEST_CACHED = 60  # seconds; a cache may keep pages of the past for this long
LEAST_SECRET = 32  # bytes
LEAST_RETENTION: Final = 3600  # seconds
MOST_RETENTION: Final = 36_500 * 86_400  # seconds
LONGEST = 7 * 86400  # seconds; a longer time is a mistake, and the kernel accepts at most 24 days


class TokenSecret(str):
    """A secret of at least 32 bytes, with which viewer tokens are signed. It is never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show nothing of the secret."""
        return "TokenSecret(…)"


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})(kb|mb|gb)?", text.lower())
    size = int(match[1]) * 1024 ** ("", "kb", "mb", "gb").index(match[2] or "") if match else -1
    if size != 0 and not LEAST_MEMORY <= size < 2**60:
        raise ValueError(
            f"{text!r} is not a size of 16mb or more; expected a number with kb, mb or gb, such as 512mb, or 0"
        )
    return size


def parse_time(text: str) -> float:
    """Parse a time such as `100ms` into seconds."""
    duration = parse_duration(text)
    if not 0 < duration <= LONGEST:
        raise ValueError(f"{text!r} is not between 1ms and 7d")
    return duration


def parse_retention(text: str) -> int:
    """Parse the time for which data is kept, such as `400d`, into seconds."""
    seconds = parse_duration(text)
    if not LEAST_RETENTION <= seconds <= MOST_RETENTION:
        raise ValueError(f"{text!r} is not between 1h and {MOST_RETENTION // 86_400}d")
    return int(seconds)


def parse_cache_time(text: str) -> int:
    """Parse the time for which a cache may answer, such as `1s` or `off`, into seconds."""
    seconds = 0 if text == "off" else parse_duration(text)
    if seconds != int(seconds) or (seconds == 0 and text != "off") or seconds > LONGEST_CACHED:
        raise ValueError(f"{text!r} is neither `off` nor whole seconds from 1s to {LONGEST_CACHED}s")
    return int(seconds)


def _parse_instant(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= len(str(2**53)):
        return int(text)
    with suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return int(time.timestamp())
    raise ValueError("expected a time with its zone, such as 2026-11-24T12:00:00Z")


def _parse_token_secret(text: str) -> TokenSecret:
    if len(text.encode()) < LEAST_SECRET:
        raise ValueError(f"it has less than {LEAST_SECRET} bytes; `openssl rand -hex 32` makes one that is long enough")
    if "-----BEGIN" in text or text.lstrip().startswith(("{", "ssh-")):  # a public key is no secret
        raise ValueError("it is a key, not a random text; LIVE_TOKEN_JWKS is for public keys")
    return TokenSecret(text)


def _parse_token_keys(text: str) -> str:
    if "://" in text and not text.startswith("https://"):
        raise ValueError("expected a file, or an address that begins with https://")
    return text


def _described(
    meaning: str,
    costs: str,
    reads: Callable[[str], Any] = str,
    in_words: str = "",
    **bounds: Any,  # noqa: ANN401 - of Meta
) -> Meta:
    """Describe a setting: what it means, and what a larger value, or another than the default, costs.

    `reads` makes its value, or each of its values, of a text. `in_words` says which texts are valid.
    """
    extra = {"costs": costs, "reads": reads} | ({"in_words": in_words} if in_words else {})
    return Meta(description=meaning, extra=extra, **bounds)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a server process."""

    # Each setting takes one to three lines. The formatter would spread it over up to eight lines.
    # fmt: off
    host: Annotated[str, _described(
        "address to listen on; `0.0.0.0` lets other machines in",
        "you need API keys and `LIVE_ALLOWED_HOSTS`")] = "127.0.0.1"
    port: Annotated[int, _described(
        "port to listen on; 0 picks a free one",
        "ports below 1024 need a privilege", ge=0, le=65535)] = 8000
    store: Annotated[str, _described(
        "address of the store: `redis://…`, `unix://…`, `redis+sentinel://…` or `redis+cluster://…`, with `rediss` "
        "for TLS; if empty, an embedded Valkey starts",
        "you run a store; each batch takes a round trip")] = ""
    data_dir: Annotated[Path, _described(
        "directory of the embedded Valkey, the SQLite journal and the server's own files",
        "stop the server to move it", Path)] = Path("live-data")
    store_memory: Annotated[int, _described(
        "memory limit of the embedded Valkey; 0 is half of the memory of the machine or container",
        "up to twice this memory while the store rewrites its file",
        _parse_size)] = 0
    journal: Annotated[str, _described(
        "database of the journal: `sqlite` (a file in the data directory), `postgresql://…` or `off`",
        "about 3 MB of disk per million events")] = "sqlite"
    journal_ack: Annotated[bool, _described(
        "acknowledge events only when the journal's database has them too",
        "each batch also waits for SQL")] = False
    journal_backlog: Annotated[int, _described(
        "size of a board's journal that may wait in the store while the database is away; above it, POST returns 503",
        "memory of the store per board", _parse_size)] = 256 * 1024**2
    journal_events: Annotated[int, _described(
        "how long the journal keeps each event",
        "disk", parse_retention)] = DEFAULT_RETENTION
    journal_periods: Annotated[int, _described(
        "how long the journal keeps old periods of calendar boards",
        "disk: a row per member and period", parse_retention)] = 400 * 86400
    max_boards: Annotated[int, _described(
        "maximum number of boards",
        "memory and background work for each board", ge=1)] = 1000
    boards: Annotated[Path | None, _described(
        "TOML file that defines boards at each start and reload; if not set, an empty store gets the board `posts`",
        "each server needs the file", Path)] = None
    workers: Annotated[int, _described(
        "number of server processes, each for one processor core",
        "about 100 MB of memory for each", ge=1, le=64)] = 1
    role: Annotated[Literal["all", "ingest", "viewers"], _described(
        "what to serve: `ingest` takes events, `viewers` serves boards, `all` does both",
        "you run two kinds of servers and a proxy")] = "all"
    demo: Annotated[bool, _described(
        "generate sample events, and sample boards unless there is a boards file",
        "your data directory has invented events")] = False
    open: Annotated[bool, _described(
        "accept events without an API key, from any address",
        "everybody who reaches the server can send events")] = False
    allowed_hosts: Annotated[tuple[str, ...], _described(
        "host names of this server, comma-separated, such as `*.example.org`; `*` allows any",
        "the owner of such a name can send browsers here", check_pattern)] = ()
    trusted_proxies: Annotated[tuple[str, ...], _described(
        "proxies whose `X-Forwarded-…` headers count: addresses and networks, comma-separated",
        "these addresses can pretend to be any client", check_network)] = ()
    root_path: Annotated[str, _described(
        "path at which a proxy serves this server, such as `/live`",
        "the proxy must pass the path on unchanged", check_root_path)] = ""
    anonymous_admin: Annotated[bool, _described(
        "let programs on this machine change boards without an API key, as long as they can send events without one",
        "every program on the machine can delete boards")] = False
    visibility: Annotated[Literal["public", "private"], _described(
        "who may read boards that set no `visibility`: `public` or `private`",
        "every viewer needs an API key or token; no caches"
    )] = "public"
    token_secret: Annotated[TokenSecret, _described(
        "secret of at least 32 bytes that signs viewer tokens (HS256)",
        "anyone who has the secret can sign tokens", _parse_token_secret)] = TokenSecret()
    token_jwks: Annotated[str, _described(
        "file or `https` address of a JSON Web Key Set that checks viewer tokens",
        "the server needs the address to learn new keys", _parse_token_keys)] = ""
    token_audience: Annotated[str, _described(
        "`aud` that viewer tokens must have",
        "signers must name it", min_length=1)] = "live-board"  # noqa: S105 - no password
    token_issuer: Annotated[str, _described(
        "`iss` that viewer tokens must have; empty allows any",
        "signers must name it")] = ""
    tokens_since: Annotated[int, _described(
        "refuse viewer tokens signed before this time, such as `2026-11-24T12:00:00Z`, and tokens without `iat`",
        "everybody needs a new token", _parse_instant)] = 0
    metrics: Annotated[Literal["auto", "open", "key", "off"], _described(
        "who may read `/metrics`: `open` everybody, `key` API keys with `read` or `admin`, `off` nobody; `auto` is "
        "`key` if there is a private board, else `open`",
        "`open` shows the load and the boards' names")] = "auto"
    admin_page: Annotated[Literal["off", "local", "on"], _described(
        "browsers that may open the admin page: `off` none, `local` those on this machine without a proxy, `on` all "
        "with TLS",
        "with `on`, a stolen admin API key works from anywhere")] = "local"
    rate: Annotated[int, _described(
        "events per second of each producer without `--rate`; 0 is no limit",
        "one producer can delay the others", ge=0)] = 100_000
    read_rate: Annotated[int, _described(
        "reads per second of each API key, and of each address without an API key; 0 is no limit",
        "one client can delay the others", ge=0)] = 5000
    like_rate: Annotated[int, _described(
        "likes per second of each address, and of each voter with a token; 20 times as many at once; 0 is no limit",
        "one person can vote this often by deleting cookies", ge=0)] = 50
    key_prefix: Annotated[str, _described(
        "prefix of every key in the store, for several installations in one store",
        "each prefix has its own boards, API keys and journal", pattern="^[a-z0-9_-]{1,32}$",
        in_words="1 to 32 of a-z, 0-9, - and _, such as live-2")] = "live"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _described(
        "lowest severity to log",
        "more lines and time per request")] = "info"

    max_connections: Annotated[int, _described(
        "maximum HTTP connections, not counting viewers; one address may have half",
        "a file descriptor and memory for each", ge=1)] = 4096
    max_unanswered: Annotated[int, _described(
        "maximum bytes of unanswered bodies; one address may have half; unread responses may take twice as much",
        "memory of the process", ge=65536)] = 128 * 1024 * 1024
    idle_timeout: Annotated[float, _described(
        "how long a connection may be idle between requests; make it longer than the idle timeout of your proxy",
        "idle clients keep connections", parse_time)] = 60.0
    max_body: Annotated[int, _described(
        "maximum bytes of a POST body, decompressed",
        "a body of 1 MiB can delay other clients by 50 ms", ge=1)] = 256 * 1024
    dedupe_window: Annotated[float, _described(
        "how long the server remembers ids of events, at least",
        "about 40 bytes of the store per id", parse_time)] = 86400.0
    store_timeout: Annotated[float, _described(
        "how long to wait for a reply of the store; increase it for a distant store",
        "the server notices later that the store is away", parse_time)] = 1.0
    write_deadline: Annotated[float, _described(
        "how long to retry a write before POST returns 503; `8s` with Sentinels or a Cluster",
        "longer waits before a refusal", parse_time)] = 0.0
    wait_replicas: Annotated[int, _described(
        "replicas that must have a write before it is acknowledged; 1 with Sentinels or a Cluster",
        "a round trip per batch; too few replicas stop all events", ge=0, le=5)] = -1

    cache: Annotated[int, _described(
        "how long caches may answer reads of boards; `off` makes them ask each time",
        "boards are older by this time", parse_cache_time)] = 0

    rotation_step: Annotated[int, _described(
        "number of members that one script call subtracts when a slot leaves the window",
        "events wait longer: 1 ms per 64 members", ge=1, le=2000)] = 64

    conflation_interval: Annotated[float, _described(
        "minimum time between two messages to a viewer",
        "viewers see changes later", parse_time)] = 0.1
    max_viewers: Annotated[int, _described(
        "maximum viewers; one address may have half",
        "1.9 KB, a file descriptor and processor time for each", ge=0)] = 20_000
    max_board_viewers: Annotated[int, _described(
        "maximum viewers of one board",
        "other boards have fewer places", ge=0)] = 20_000
    slow_timeout: Annotated[float, _described(
        "how long a viewer may read nothing",
        "absent viewers keep places and buffers", parse_time)] = 15.0
    max_items: Annotated[int, _described(
        "maximum members with a title",
        "memory in the store and each process", ge=0)] = 100_000
    image_hosts: Annotated[tuple[str, ...], _described(
        "hosts of members' pictures, comma-separated, such as `*.example.org`",
        "these hosts learn viewers' addresses", check_pattern)] = ()
    allowed_origins: Annotated[tuple[str, ...], _described(
        "other origins whose pages may watch boards and vote with tokens, comma-separated",
        "these pages can vote for their visitors", check_origin)] = ()
    # fmt: on

    def __post_init__(self) -> None:
        """Set the defaults that depend on the store: a replica may take over only in a store of several servers."""
        several = any(kind in self.store.partition("://")[0] for kind in ("+sentinel", "+cluster"))
        if not self.write_deadline:
            msgspec.structs.force_setattr(self, "write_deadline", 8.0 if several else 2.0)
        if self.wait_replicas < 0:
            msgspec.structs.force_setattr(self, "wait_replicas", 1 if several else 0)


METAS: Final[Mapping[str, Meta]] = {
    field.name: next(part for part in field.type.__metadata__ if isinstance(part, Meta))
    for field in msgspec.structs.fields(Settings)
}
"""What describes each setting. Its `extra` has what a larger value costs, and the function that reads it."""


def environment_name(setting: str) -> str:
    """Name the environment variable of a setting: `max_body` is `LIVE_MAX_BODY`."""
    return f"{_PREFIX}{setting.upper()}"


def load_settings(
    environment: Mapping[str, str] = os.environ,
    *,
    check: Callable[[Settings, AbstractSet[str]], list[str]] = lambda _settings, _invalid: [],
    **given: Any,  # noqa: ANN401 - the types of the settings
) -> Settings:
    """Read each setting from its flag in `given`, if it is not None, else from the environment, else from the defaults.

    `check` finds further mistakes in the valid settings. `check` also gets the names of the invalid settings, whose
    fields have the defaults. An error has one line for each mistake.
    """
    values: dict[str, Any] = {}
    known = [*map(environment_name, METAS), *OTHER_VARIABLES]
    mine = sorted(name for name in environment if name.startswith(_PREFIX))
    mistakes = [unknown("setting", name, known) for name in mine if name not in known]
    invalid: set[str] = set()
    for field in msgspec.structs.fields(Settings):
        value: Any = given.get(field.name)
        if value is None:
            value = environment.get(environment_name(field.name))
        if value is None or value == "":
            continue
        given_text = str(value)
        reads = (METAS[field.name].extra or {})["reads"]
        try:
            if isinstance(field.default, tuple) and isinstance(value, str):
                value = tuple(reads(part.strip()) for part in value.split(",") if part.strip())
            elif isinstance(value, str):
                value = reads(value)
            values[field.name] = msgspec.convert(value, field.type, strict=False)
        except ValueError as error:
            shown = "(not shown)" if field.type.__origin__ is TokenSecret else repr(given_text)
            is_found = isinstance(error, msgspec.ValidationError)
            reason = invalid_value(error, value, field.type) if is_found else error
            mistakes.append(f"{environment_name(field.name)} (or its flag) = {shown}: {reason}")
            invalid.add(field.name)
    settings = Settings(**values)
    mistakes += check(settings, invalid)
    if mistakes:
        raise SetupError("\n".join(mistakes))
    return settings
