"""The composition root: it puts together the parts of one process, which the routes share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec
from jinja2 import Environment
from msgspec import field
from starlette.requests import Request

from live.auth.authenticator import Authenticator
from live.auth.client import EXTENSION, ClientResolver
from live.auth.rate_limiter import RateLimiter
from live.auth.visitors import Visitors
from live.auth.voting import Voting
from live.boards.admin import BoardAdmin
from live.boards.readiness import Readiness
from live.boards.registry import BoardRegistry
from live.domain.board import Boards
from live.domain.reader import NOBODY, Reader
from live.errors import EpochLostError, ProblemError
from live.fanout.hub import Hub
from live.ingest.intake import Intake
from live.ingest.refusals import Refusals
from live.ingest.replies import Reply
from live.journal.database import Database, open_journal
from live.journal.past.pool import Past
from live.protocols.body_budget import BodyBudget
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.viewer_reaper import ViewerReaper
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
from live.system.ledger import ClientLedger
from live.web.activity import Activity
from live.web.http.drawings import Drawings
from live.web.http.middleware import READER, SESSION
from live.web.http.responses import Derived, cache_control
from live.web.pages.charts import Histories, Line

if TYPE_CHECKING:
    from live.auth.tokens import Tokens

_T = TypeVar("_T")

_AT_ONCE: Final = 64  # boards read at the same time, so that one request does not block the store


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The running parts of one process."""

    settings: Settings
    templates: Environment
    client: Store
    losses: LossWatch
    presence: Presence
    items: Items
    trail: AuditTrail
    journal: Database | None
    past: Past | None
    board_cache: bytes  # the `Cache-Control` of board reads in JSON, which everybody may see
    # The parts that decide who may send and watch, and how much.
    authenticator: Authenticator
    rate_limiter: RateLimiter
    visitors: Visitors
    voting: Voting
    sessions: SessionStore  # the sessions of the admin page
    limits: ConnectionLimits
    bodies: BodyBudget
    # Boards, their events and their viewers.
    hub: Hub
    reaper: ViewerReaper
    board_admin: BoardAdmin
    registry: BoardRegistry
    readiness: Readiness
    intake: Intake
    # The parts that requests share.
    reads: SharedPages
    drawings: Drawings
    metrics: Drawings
    top_slots: TopSlots = field(default_factory=TopSlots)
    baselines: Baselines = field(default_factory=Baselines)
    encoded: Derived[Reply] = field(default_factory=Derived)
    trend_lines: Derived[Mapping[str, Line]] = field(default_factory=Derived)
    histories: Histories = field(default_factory=Histories)
    activity: Activity = field(default_factory=Activity)

    async def ledger(self, board_id: str, reader: Reader) -> Ledger:
        """Find a board by its id, for a reader.

        If this process does not know the board, ask the store: another process may have created the board a moment
        ago.

        Raises:
            ProblemError: `board_not_found`.
            StoreUnavailableError: the store is unavailable, and this process does not know the board; or the
                credentials of the reader can't be checked.
            EpochLostError: the store lost data, and this process does not know the board.
        """
        found = self.registry.ledgers.find(board_id, reader)
        if found is None:
            await self.registry.ask()
            found = self.registry.ledgers.find(board_id, reader)
        if found is None:
            raise reader.refusal(board_id, [ledger.state.board.id for ledger in self.registry.ledgers.all(reader)])
        return found

    def ledgers(self, reader: Reader) -> list[Ledger]:
        """Find all boards that a reader may read.

        Raises:
            StoreUnavailableError: the credentials of the reader can't be checked.
        """
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
        """Call `ask` for some boards of a reader, a few at a time. Boards that are deleted meanwhile are omitted.

        Raises:
            EpochLostError: the store lost a board.
        """
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


def make_parts(settings: Settings, in_file: Boards, clients: ClientResolver, templates: Environment) -> Live:
    """Make the parts of a process, without starting them. `settings.store` is the URL of the store."""
    client = connect(settings.store, settings)
    losses = LossWatch(client, settings.key_prefix)
    losses.guard_connections()
    authenticator = Authenticator(client, settings, tokens_of(settings))
    rate_limiter = RateLimiter(client, settings)
    rate_limiter.on_refused = authenticator.note_refusal
    ledger = ClientLedger(settings, clients.trusts)
    limits = ConnectionLimits(settings, ledger)
    presence = Presence(client, settings.key_prefix)
    hub, board_admin = Hub(client, (), settings, presence, ledger), BoardAdmin(client, settings, in_file)
    registry = BoardRegistry(client, settings, hub, board_admin)
    intake = Intake(
        settings, registry.boards, registry.committers, authenticator, rate_limiter, registry.ask_soon,
        refusals=Refusals(client, settings.key_prefix),
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
        trail=AuditTrail(client, settings.key_prefix),
        items=Items(client, settings.key_prefix, settings.max_items),
        journal=open_journal(settings, writes=settings.role != "viewers"),
        past=None if settings.journal == "off" else Past(settings, ledger.past),
        board_cache=cache_control(settings.cache),
        authenticator=authenticator,
        rate_limiter=rate_limiter,
        visitors=Visitors(client, settings.key_prefix),
        voting=Voting(rate_limiter, settings),
        sessions=SessionStore(client, settings.key_prefix),
        limits=limits,
        bodies=BodyBudget(limits, ledger),
        hub=hub,
        reaper=ViewerReaper(hub, settings.slow_timeout),
        board_admin=board_admin,
        registry=registry,
        readiness=Readiness(client, settings, registry),
        intake=intake,
        reads=SharedPages(presence),
        drawings=Drawings(ledger.drawings),
        metrics=Drawings(ledger.metrics),
    )


def tokens_of(settings: Settings) -> "Tokens | None":
    """Make the object that checks viewer tokens. Return None if the settings have neither a secret nor a key set.

    Raises:
        SetupError: the settings name both a secret and a key set, or the file of the key set is not valid.
    """
    if not (settings.token_secret or settings.token_jwks):
        return None
    from live.auth.tokens import make_tokens  # noqa: PLC0415 - it takes a while to load

    return make_tokens(settings)


def live_of(request: Request) -> Live:
    """Return the running parts of the process."""
    return cast("Live", request.app.state.live)


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
