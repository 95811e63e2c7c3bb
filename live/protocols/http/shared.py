"""The parts that all HTTP connections of a process share."""

from typing import Any, NamedTuple

from uvicorn.server import ServerState

from live.auth.client import ClientResolver
from live.auth.rate_limiter import RateLimiter
from live.ingest.intake import AskSoon, Intake
from live.protocols.body_budget import BodyBudget
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.http.head_cache import HeadCache
from live.protocols.http.hot_get import Reads
from live.protocols.http.parts import Parts
from live.protocols.http.response_heads import ResponseHeads
from live.protocols.http.upgrade import Upgrades
from live.settings import Settings


class Shared(NamedTuple):
    """The shared parts, made with the first connection: only a connection knows its server."""

    settings: Settings
    rate_limiter: RateLimiter
    clients: ClientResolver
    intake: Intake
    limits: ConnectionLimits
    bodies: BodyBudget
    heads: ResponseHeads
    head_cache: HeadCache
    upgrades: Upgrades
    reads: Reads
    ask_soon: AskSoon
    root_path: bytes

    @classmethod
    def of(cls, app_state: dict[str, Any], server_state: ServerState) -> "Shared":
        """Make the shared parts of a process from the lifespan state."""
        parts: Parts = app_state["parts"]
        parts.reaper.serve(server_state)
        shared = app_state["shared"] = cls(
            settings=parts.settings,
            rate_limiter=parts.rate_limiter,
            clients=parts.clients,
            intake=parts.intake,
            limits=parts.limits,
            bodies=parts.bodies,
            heads=ResponseHeads(server_state),
            head_cache=HeadCache(parts.intake, parts.authenticator, parts.clients),
            upgrades=Upgrades(parts),
            reads=parts.reads,
            ask_soon=parts.ask_soon,
            root_path=parts.settings.root_path.encode(),
        )
        return shared
