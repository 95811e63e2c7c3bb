"""The work of the commands for operators, one command in each module.

`SetupError` says what an operator has to change first: a server that runs or does not run, damaged or missing data, an
unknown board. After `StoreUnavailableError`, or `EpochLostError` from a call that changes boards, call it again: it
continues where it stopped.
"""
