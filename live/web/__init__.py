"""The application of a process: its parts, its routes, and what all of its routes share.

A request that is refused raises `ProblemError`, whose code says why. A function that reads a board raises
`StoreUnavailableError` if the store, or the credentials of the reader, can't be checked now, and `EpochLostError` if
the store lost data.
"""
