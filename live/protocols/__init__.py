"""The connections of clients, plugged into uvicorn: HTTP/1.1 and WebSockets.

`ProblemError` refuses a request, and nothing can be read from its connection after it. `StoreUnavailableError` says
that credentials can't be checked now.
"""
