"""Reads the client, the host and the proxies of a request from its headers. No I/O."""
