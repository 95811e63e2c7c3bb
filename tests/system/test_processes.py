"""What a worker process sets up for itself."""

import subprocess
import sys

ENDED_WHILE_COLLECTING = """
import os, signal, sys
from live.system.processes import relax_collector

signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))

Cycle()
relax_collector()
print("the signal was lost")
"""


def test_a_signal_during_garbage_collection_is_not_lost() -> None:
    """An exception that its handler raises inside a destructor would be dropped, and the process would stay."""
    done = subprocess.run([sys.executable, "-c", ENDED_WHILE_COLLECTING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
