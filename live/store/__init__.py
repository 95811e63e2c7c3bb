"""The store of Live Board: the only package that uses the Redis protocol.

A function that talks to the store raises `StoreUnavailableError` if the store can't be reached, refuses, or holds
something that can't be read; if the error is `unknown`, a change may have been made. A function that works on a board
raises `EpochLostError` if the store lost the board, and a function that counts raises `JournalBehindError` if too much
of the journal waits to be moved to SQL. `SetupError` says what an operator has to change. `Raises:` names only errors
that say more.
"""
