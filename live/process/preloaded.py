"""What the fork server imports before it forks the first process.

The imports create no garbage, but collections would take a fifth of their time. The forked processes never collect what
is imported here, so they share this memory with the fork server.
"""

import gc

gc.disable()

import live.process.worker  # noqa: E402, F401 - the fork server runs it

gc.freeze()
gc.enable()
