"""The store of Live Board: the only package that uses the Redis protocol.

A function that talks to the store raises `StoreUnavailableError` if the store can't be reached or refuses. A
function that works on a board raises `EpochLostError` if the store lost the board. `Raises:` names only other errors.
"""
