"""The composition root: it puts together the parts of one process, which the routes share."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from jinja2 import Environment
from msgspec import field
from starlette.requests import Request

from live.auth.authenticator import Authenticator
from live.auth.rates import RateLimiter
from live.auth.requester import EXTENSION, RequesterResolver
from live.auth.visitors import Visitors, Voting
from live.boards.admin import BoardAdmin
from live.boards.readiness import Readiness
from live.boards.registry import BoardRegistry
from live.domain.reader import NOBODY, Reader
from live.errors import EpochLostError, ProblemError
from live.fanout.hub import Hub
from live.http.reply import Reply
from live.ingest.intake import Intake
from live.ingest.refusals import Refusals
from live.journal.database import Database, open_journal
from live.journal.past.pool import Past
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.shared import SharedParts
from live.protocols.websocket import ViewerReaper
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.read.baseline import Baselines
from live.store.board.read.single_flight import SharedPages
from live.store.board.read.slots import TopSlots
from live.store.connection.client import Store, connect
from live.store.connection.loss import LossWatch
from live.store.registry.audit_trail import AuditTrail
from live.store.registry.items import Items
from live.store.registry.presence import Presence
from live.store.registry.sessions import SessionStore
from live.system.resources import Resources
from live.web.activity import Activity
from live.web.middleware import READER, SESSION
from live.web.responses import Derived, Drawings, cache_control

if TYPE_CHECKING:
    from live.auth.tokens import Tokens

_T = TypeVar("_T")

_AT_ONCE: Final = 64  # boards read at the same time, so that one request does not block the store


class Live(SharedParts, kw_only=True):
    """The running parts of one process. `sessions` are those of the admin page."""

    templates: Environment
    client: Store
    losses: LossWatch
    presence: Presence
    items: Items
    trail: AuditTrail
    journal: Database | None
    past: Past | None
    board_cache: bytes  # the `Cache-Control` of board reads in JSON, which everybody may see
    visitors: Visitors
    voting: Voting
    sessions: SessionStore
    # Boards and their viewers.
    hub: Hub
    board_admin: BoardAdmin
    registry: BoardRegistry
    readiness: Readiness
    # The parts that requests share.
    reads: SharedPages
    drawings: Drawings
    metrics: Drawings
    top_slots: TopSlots = field(default_factory=TopSlots)
    baselines: Baselines = field(default_factory=Baselines)
    encoded: Derived[Reply] = field(default_factory=Derived)
    trend_lines: Derived[Any] = field(default_factory=Derived)  # the sparklines of rows
    histories: dict[Hashable, Any] = field(default_factory=dict)  # of records
    activity: Activity = field(default_factory=Activity)

    async def ledger(self, board_id: str, reader: Reader) -> Ledger:
        """Find a board for a reader. Another process may have created it just now: ask the store before refusing."""
        found = self.registry.ledgers.find(board_id, reader)
        if found is None:
            await self.registry.ask()
            found = self.registry.ledgers.find(board_id, reader)
        if found is None:
            raise reader.refusal(board_id, [ledger.state.board.id for ledger in self.registry.ledgers.all(reader)])
        return found

    def ledgers(self, reader: Reader) -> list[Ledger]:
        """Find all boards that a reader may read."""
        reader.require_sure()
        return self.registry.ledgers.all(reader)

    async def use(self, board_id: str, reader: Reader) -> Ledger:
        """Record that a board is in use, and return its ledger. Raises the errors of `ledger`."""
        ledger = await self.ledger(board_id, reader)
        if ledger.state.board.idle_ttl is not None:
            await ledger.state.use()
        return ledger

    async def over_boards(
        self, ask: Callable[[Ledger], Awaitable[_T]], ledgers: Sequence[Ledger], reader: Reader
    ) -> list[_T]:
        """Call `ask` for some boards of a reader, a few at a time. Boards that are deleted meanwhile are omitted."""
        given: list[_T] = []
        for first in range(0, len(ledgers), _AT_ONCE):
            piece = ledgers[first : first + _AT_ONCE]
            answers = await asyncio.gather(*(ask(ledger) for ledger in piece), return_exceptions=True)
            for ledger, answer in zip(piece, answers, strict=True):
                error: BaseException | None = answer if isinstance(answer, BaseException) else None
                if isinstance(error, EpochLostError):
                    error = await self.registry.explain(ledger.state.board.id, error, reader)
                    if isinstance(error, ProblemError):
                        continue
                if error is not None:
                    raise error
                given.append(cast("_T", answer))
        return given


def search(ledgers: Iterable[Ledger], text: str) -> list[Ledger]:
    """Find the boards with a text in their id or title, in upper or lower case."""
    wanted, boards = text.casefold(), ((ledger, ledger.state.board) for ledger in ledgers)
    return [ledger for ledger, board in boards if wanted in board.id or wanted in board.title.casefold()]


def make_parts(settings: Settings, templates: Environment) -> Live:
    """Make the parts of a process, without starting them. `settings.store` is the URL of the store."""
    client = connect(settings.store, settings)
    losses = LossWatch(client)
    losses.guard_connections()
    authenticator = Authenticator(client, settings, tokens_of(settings))
    rate_limiter = RateLimiter(client, settings)
    rate_limiter.on_refused = authenticator.note_refusal
    resources = Resources(settings)
    presence = Presence(client)
    hub, board_admin = Hub(client, settings, presence, resources), BoardAdmin(client, settings)
    registry = BoardRegistry(client, settings, hub, board_admin)
    intake = Intake(
        settings, registry.boards, registry.committers, authenticator, rate_limiter, registry.ask_soon,
        refusals=Refusals(client),
    )  # fmt: skip
    registry.publish = intake.set_boards
    authenticator.on_revoked = authenticator.signed_in.on_ended = hub.recheck
    if authenticator.tokens is not None:
        authenticator.tokens.on_ended = hub.recheck
    return Live(
        settings=settings,
        templates=templates,
        client=client,
        losses=losses,
        presence=presence,
        trail=AuditTrail(client),
        items=Items(client, settings.max_items),
        journal=open_journal(settings, writes=settings.role != "viewers"),
        past=None if settings.journal == "off" else Past(settings, resources.past),
        board_cache=cache_control(settings.cache),
        authenticator=authenticator,
        rate_limiter=rate_limiter,
        clients=RequesterResolver(settings),
        visitors=Visitors(client),
        voting=Voting(rate_limiter, settings),
        sessions=SessionStore(client),
        limits=ConnectionLimits(settings, resources),
        hub=hub,
        reaper=ViewerReaper(hub, settings.slow_timeout),
        board_admin=board_admin,
        registry=registry,
        readiness=Readiness(client, settings, registry),
        intake=intake,
        ask=registry.ask,
        root_path=settings.root_path.encode(),
        reads=SharedPages(presence),
        drawings=Drawings(resources.drawings),
        metrics=Drawings(resources.metrics),
    )


def tokens_of(settings: Settings) -> "Tokens | None":
    """Make the object that checks viewer tokens. Return None if the settings have neither a secret nor a key set."""
    if not (settings.token_secret or settings.token_jwks):
        return None
    from live.auth.tokens import make_tokens  # noqa: PLC0415 - it takes a while to load

    return make_tokens(settings)


def live_of(request: Request) -> Live:
    """Return the running parts of the process."""
    return cast("Live", request.scope["state"]["parts"])


def reader_of(request: Request) -> Reader:
    """Return the reader of a request. If it may read private boards, no cache may share the response."""
    extensions = request.scope["extensions"]
    reader: Reader | None = extensions.get(READER)
    if reader is None:
        client, query = extensions[EXTENSION], request.query_params
        fields, session = request.scope["headers"], extensions.get(SESSION, NOBODY)
        reader = live_of(request).authenticator.reader_of(fields, client, query, session)
        extensions[READER] = reader
    return reader


def assets(name: str) -> Path:
    """Find the directory `static` or `templates`: in the installed package, or at the top of a checkout."""
    package = Path(__file__).parent.parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
