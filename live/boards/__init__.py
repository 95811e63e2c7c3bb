"""Boards: how they are defined and changed, and the boards that a process runs.

`ProblemError` refuses a request, and `SetupError` a file or a definition, with a line for each mistake. After
`StoreUnavailableError` or `EpochLostError`, the same call continues where it stopped.
"""
