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
    buys: str,
    costs: str,
    reads: Callable[[str], Any] = str,
    in_words: str = "",
    **bounds: Any,  # noqa: ANN401 - of Meta
) -> Meta:
    """Describe a setting: what it means, and what a larger value, or another than the default, buys and costs.

    `reads` makes its value, or each of its values, of a text. `in_words` says which texts are valid.
    """
    extra = {"buys": buys, "costs": costs, "reads": reads} | ({"in_words": in_words} if in_words else {})
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
        "moving it needs a stopped server", Path)] = Path("live-data")
    store_memory: Annotated[int, _described(
        "memory limit of the embedded Valkey; 0 uses half of the machine's or container's memory",
        "more members and longer windows",
        "memory that other programs lack; while the store writes a new file, it can need twice as much",
        _parse_size)] = 0
    journal: Annotated[str, _described(
        "SQL database of the journal: `sqlite` is a file in the data directory, `postgresql://…` a server, "
        "and `off` keeps no journal",
        "recovering a lost store, the past, and exports",
        "about 3 MB of disk for a million events; PostgreSQL is a server to run")] = "sqlite"
    journal_ack: Annotated[bool, _described(
        "acknowledge events only when they are in the journal's database too, so that they are on two disks",
        "no acknowledged event is lost with one disk",
        "each batch also waits until SQL has committed it")] = False
    journal_backlog: Annotated[int, _described(
        "maximum bytes of a board's journal that may wait in the store; "
        "beyond this, POST returns 503",
        "events count for longer while the database is away",
        "memory of the store for each board", _parse_size)] = 256 * 1024**2
    journal_events: Annotated[int, _described(
        "how long the journal keeps every event",
        "a longer past with every event",
        "disk, in proportion to the time", parse_retention)] = DEFAULT_RETENTION
    journal_periods: Annotated[int, _described(
        "how long the journal keeps the periods that a calendar board does not keep any more",
        "older periods stay readable",
        "disk, a row for each member of a period", parse_retention)] = 400 * 86400
    max_boards: Annotated[int, _described("maximum number of boards",
        "more boards",
        "memory and background work of each process for each board in use", ge=1)] = 1000
    boards: Annotated[Path | None, _described(
        "TOML file that defines boards at each start and reload; without it, an empty store gets `posts`",
        "boards that are kept in a file, with their history in version control",
        "a file to deliver to each server", Path)] = None
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
    allowed_hosts: Annotated[tuple[str, ...], _described(
        "host names of this server, comma-separated, such as `board.example.org` or `*.example.org`; "
        "`*` allows any",
        "the server answers under these names",
        "each name is a name that pages of others can use too, if you do not control it", check_pattern)] = ()
    trusted_proxies: Annotated[tuple[str, ...], _described(
        "addresses and networks of proxies, comma-separated, whose `X-Forwarded-…` are trusted",
        "clients behind the proxy have limits of their own, and links begin with `https`",
        "who can send from these addresses can pretend to be any client", check_network)] = ()
    root_path: Annotated[str, _described(
        "path prefix under which a proxy serves this server, such as `/live`",
        "one host for several applications",
        "the proxy must cut the prefix off", check_root_path)] = ""
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
        "whoever has the secret can sign tokens for everything", _parse_token_secret)] = TokenSecret()
    token_jwks: Annotated[str, _described(
        "file or `https` address of the public keys with which viewer tokens are checked "
        "(a JSON Web Key Set for RS256, ES256 or EdDSA)",
        "tokens of an identity provider, and no secret on the server",
        "events and pages depend on the address when keys change", _parse_token_keys)] = ""
    token_audience: Annotated[str, _described("what `aud` of a viewer token must be",
        "tokens for other applications of the same signer are refused",
        "signers must name it", min_length=1)] = "live-board"  # noqa: S105 - no password
    token_issuer: Annotated[str, _described("what `iss` of a viewer token must be; empty allows any",
        "tokens of other signers with the same keys are refused",
        "signers must name it")] = ""
    tokens_since: Annotated[int, _described(
        "viewer tokens that were signed before this time are refused, such as `2026-11-24T12:00:00Z`; "
        "with this setting, every token needs `iat`",
        "all stolen tokens end at once",
        "everybody needs a new token", _parse_instant)] = 0
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
    max_unanswered: Annotated[int, _described(
        "maximum bytes of bodies that are not answered yet, at most half of them from one address; "
        "beyond this, the server reads no more. Responses that clients have not read yet may take twice as much",
        "more large bodies at once, and slow clients keep their connections",
        "memory of the process", ge=65536)] = 128 * 1024 * 1024
    idle_timeout: Annotated[float, _described("how long a connection may stay idle between requests",
        "fewer handshakes; longer than that of the proxy in front",
        "places in `max_connections` for clients that may never come back", parse_time)] = 60.0
    max_body: Annotated[int, _described(
        "maximum bytes of a POST body, after decompression; a body of 1 MiB can hold up the other clients of a process "
        "for 50 ms",
        "larger batches",
        "a body of 1 MiB can hold up the other clients of a process for 50 ms", ge=1)] = 256 * 1024
    dedupe_window: Annotated[float, _described(
        "minimum time for which an event's id is remembered",
        "an event that is sent again later still counts once",
        "about 40 bytes of the store for each event with an id", parse_time)] = 86400.0
    store_timeout: Annotated[float, _described(
        "how long to wait for a reply of the store; if the store owes replies and sends nothing for three times as "
        "long, the server closes the connection",
        "a store that is far away or slow still counts",
        "a dead store is noticed later, and requests wait for it", parse_time)] = 1.0
    write_deadline: Annotated[float, _described(
        "how long a write is retried before POST returns 503; "
        "the default is `8s` with Sentinels or a Cluster, and `2s` otherwise",
        "a failover that takes longer refuses no event",
        "requests wait longer before they are refused", parse_time)] = 0.0
    wait_replicas: Annotated[int, _described(
        "number of replicas that must hold a write before it is acknowledged; "
        "the default is 1 with Sentinels or a Cluster, and 0 otherwise",
        "an event survives the loss of as many stores",
        "a network round trip for each batch; too few replicas stop all events", ge=0, le=5)] = -1

    cache: Annotated[int, _described(
        "how long proxies, CDNs and browsers may answer reads of boards without asking the server; "
        "`off` makes them ask each time",
        "a CDN answers most reads",
        "readers see a board that is as much older", parse_cache_time)] = 0

    rotation_step: Annotated[int, _described("members of a slot to subtract per script call",
        "old slots of large boards leave sooner",
        "longer script calls, which delay events: 64 members take about 1 ms", ge=1, le=2000)] = 64

    conflation_interval: Annotated[float, _described(
        "minimum time between two messages to a viewer",
        "viewers see a change sooner",
        "more messages, each of which takes processor time and bandwidth", parse_time)] = 0.1
    max_viewers: Annotated[int, _described("maximum viewers; one address (or IPv6 /64 network) may have half",
        "more people watch at once",
        "a file descriptor and 1.9 KB for each, and processor time for each message", ge=0)] = 20_000
    max_board_viewers: Annotated[int, _described("maximum viewers of one board",
        "one board may be more popular",
        "it can take the places of the viewers of other boards", ge=0)] = 20_000
    slow_timeout: Annotated[float, _described(
        "a viewer that reads nothing for this long is disconnected",
        "viewers with a bad connection stay",
        "places and buffers for viewers that are gone", parse_time)] = 15.0
    max_items: Annotated[int, _described("maximum number of members that have a title",
        "more members with titles and pictures",
        "memory in the store and in each process for each title", ge=0)] = 100_000
    image_hosts: Annotated[tuple[str, ...], _described(
        "hosts of the pictures of members, comma-separated, such as `img.example.org` or `*.example.org`",
        "pictures beside the names",
        "these hosts learn the addresses of your viewers", check_pattern)] = ()
    allowed_origins: Annotated[tuple[str, ...], _described(
        "additional origins whose pages may watch boards and vote with viewer tokens, comma-separated; the "
        "server's own origin always may",
        "boards on pages of other sites",
        "these pages can vote for their visitors who have a token", check_origin)] = ()
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
"""What describes each setting. Its `extra` has what a larger value buys and costs, and the function that reads it."""


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
