"""The parts that the application passes to its connections."""

from typing import NamedTuple

from live.auth.authenticator import Authenticator
from live.auth.client import ClientResolver
from live.auth.rate_limiter import RateLimiter
from live.ingest.intake import AskSoon, Intake
from live.protocols.body_budget import BodyBudget
from live.protocols.connection_limits import ConnectionLimits
from live.protocols.http.hot_get import Reads
from live.protocols.viewer_reaper import ViewerReaper
from live.settings import Settings


class Parts(NamedTuple):
    """The parts that connections use; the lifespan state holds them as `parts`."""

    settings: Settings
    authenticator: Authenticator
    rate_limiter: RateLimiter
    clients: ClientResolver
    intake: Intake
    limits: ConnectionLimits
    bodies: BodyBudget
    reaper: ViewerReaper
    reads: Reads
    ask_soon: AskSoon
