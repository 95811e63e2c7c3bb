"""What the fork server of `tests.harness.forked` imports: all commands. See `live.workers.preloaded`."""

import gc
from importlib import import_module

gc.disable()

from live.cli.main import COMMANDS  # noqa: E402 - after `disable`

for _module, _ in COMMANDS.values():
    import_module(_module)

gc.freeze()
gc.enable()
