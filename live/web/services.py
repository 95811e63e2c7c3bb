"""The running parts of a process, which the routes share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec
from jinja2 import Environment
from starlette.requests import Request

from live.auth.authenticator import Authenticator
from live.auth.rate_limiter import RateLimiter
from live.auth.visitors import Visitors
from live.boards.admin import BoardAdmin
from live.boards.players import PlayerProcess
from live.boards.readiness import Readiness
from live.boards.registry import BoardRegistry
from live.domain.board import Board, Boards
from live.errors import EpochLostError, ProblemError
from live.fanout.hub import Hub
from live.ingest.intake import Intake
from live.ingest.replies import Reply
from live.journal.database import Database
from live.journal.past.pool import Past
from live.protocols.body_budget import BodyBudget
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.viewer_reaper import ViewerReaper
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.read.baseline import Baselines
from live.store.board.read.single_flight import SharedPages
from live.store.board.read.slots import TopSlots
from live.store.connection.client import Store
from live.store.connection.loss import LossWatch
from live.store.registry.items import Items
from live.store.registry.presence import Presence
from live.web.http.drawings import Drawings
from live.web.http.responses import Derived
from live.web.pages.charts import RankCharts

_T = TypeVar("_T")

_AT_ONCE: Final = 64  # boards read at the same time, so that one request does not block the store


class Live(msgspec.Struct, frozen=True):
    """The running parts of one process."""

    settings: Settings
    client: Store
    registry: BoardRegistry
    board_admin: BoardAdmin
    readiness: Readiness
    authenticator: Authenticator
    rate_limiter: RateLimiter
    visitors: Visitors
    intake: Intake
    limits: ConnectionLimits
    bodies: BodyBudget
    hub: Hub
    reaper: ViewerReaper
    presence: Presence
    items: Items
    losses: LossWatch
    reads: SharedPages
    top_slots: TopSlots
    baselines: Baselines
    encoded: Derived[Reply]
    trend_lines: Derived[Mapping[str, str]]
    drawings: Drawings
    metrics: Drawings
    templates: Environment
    journal: Database | None
    past: Past | None
    players: PlayerProcess | None
    rank_charts: RankCharts

    @property
    def boards(self) -> Boards:
        """The current boards."""
        return self.registry.boards

    @property
    def ledgers(self) -> Mapping[str, Ledger]:
        """The ledger of each current board."""
        return self.registry.ledgers

    async def board(self, board_id: str) -> Board:
        """Find a board by its id. Another process may have created it a moment ago.

        Raises:
            ProblemError: `board_not_found`.
            StoreUnavailableError: the store is unavailable, and this process does not know the board.
            EpochLostError: the store lost data, and this process does not know the board.
        """
        if board_id not in self.boards.by_id:
            await self.registry.ask()
        board = self.boards.by_id.get(board_id)
        if board is None:
            raise ProblemError("board_not_found", "GET /v1/boards lists the boards")
        return board

    async def use(self, board_id: str) -> Ledger:
        """Record that a board is in use, and return its ledger.

        Raises:
            ProblemError: `board_not_found`.
            EpochLostError: the store lost the board.
        """
        ledger = self.ledgers[(await self.board(board_id)).id]
        if ledger.state.board.idle_ttl is not None:
            await ledger.state.use()
        return ledger

    async def over_boards(
        self, ask: Callable[[Ledger], Awaitable[_T]], ledgers: Sequence[Ledger] | None = None
    ) -> list[_T]:
        """Call `ask` for some boards, by default all, a few at a time. Boards that are deleted meanwhile are omitted.

        Raises:
            EpochLostError: the store lost a board.
        """
        ledgers = list(self.ledgers.values()) if ledgers is None else ledgers
        given: list[_T] = []
        for first in range(0, len(ledgers), _AT_ONCE):
            piece = ledgers[first : first + _AT_ONCE]
            answers = await asyncio.gather(*(ask(ledger) for ledger in piece), return_exceptions=True)
            for ledger, answer in zip(piece, answers, strict=True):
                error: BaseException | None = answer if isinstance(answer, BaseException) else None
                if isinstance(error, EpochLostError):
                    error = await self.registry.explain(ledger.state.board.id, error)
                    if isinstance(error, ProblemError):
                        continue
                if error is not None:
                    raise error
                given.append(cast("_T", answer))
        return given


def live_of(request: Request) -> Live:
    """Return the running parts of the process."""
    return cast("Live", request.app.state.live)


def assets(name: str) -> Path:
    """Find the directory `static` or `templates`: in the installed package, or at the top of a checkout."""
    package = Path(__file__).parent.parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
