"""The middleware around all routes: the client, the origins that may read, and the security headers."""
