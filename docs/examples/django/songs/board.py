"""The client of the live board."""

import atexit
from contextlib import ExitStack
from functools import cache

from django.conf import settings
from live.client import SyncLiveBoard

_open = ExitStack()
atexit.register(_open.close)


@cache
def board() -> SyncLiveBoard:
    """The client of this process. The first like opens it, so each worker that gunicorn forks has its own."""
    return _open.enter_context(SyncLiveBoard(settings.BOARD_URL, settings.BOARD_KEY))
