"""HTTP without I/O: requests, replies, query parameters, and the client and host that headers name."""
