"""Readings of the past that take long. They are in their own module, because each reader process imports it."""

import time
from typing import Final

from live.settings import Settings

SLOW: Final = 5.0  # seconds that a long query takes


def sleep_on(settings: Settings, *_: object) -> None:
    """Work that never ends. It notes in the data directory that it has begun."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with (settings.data_dir / "begun").open("a") as file:
        file.write(".")
    while True:
        time.sleep(0.01)


def sleep_a_while(settings: Settings) -> None:
    """Work that takes long. It notes in the data directory that it has begun."""
    with (settings.data_dir / "begun").open("a") as file:
        file.write(".")
    time.sleep(SLOW)
