"""What all HTTP connections of a process share."""

from typing import Any, NamedTuple

from uvicorn.server import ServerState

from live.auth.client import ClientResolver
from live.ingest.intake import Intake
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.http.hot_post import KnownHeads
from live.protocols.http.response_heads import Heads
from live.protocols.http.upgrade import Upgrades
from live.protocols.viewer_reaper import Attendant


class Shared(NamedTuple):
    """The parts; made with the first connection, for only that knows the server."""

    intake: Intake
    limits: ConnectionLimits
    heads: Heads
    known_heads: KnownHeads
    upgrades: Upgrades
    clients: ClientResolver
    root_path: bytes

    @classmethod
    def of(cls, app_state: dict[str, Any], server_state: ServerState) -> "Shared":
        """The parts of a process, from what the application has put into the state of its lifespan."""
        intake: Intake = app_state["intake"]
        limits: ConnectionLimits = app_state["limits"]
        attendant: Attendant = app_state["attendant"]
        attendant.serve(server_state)
        clients: ClientResolver = app_state["clients"]
        shared = app_state["shared"] = cls(
            intake=intake,
            limits=limits,
            heads=Heads(server_state),
            known_heads=KnownHeads(intake, clients),
            upgrades=Upgrades(intake, limits, attendant, server_state),
            clients=clients,
            root_path=intake.settings.root_path.encode(),
        )
        return shared
