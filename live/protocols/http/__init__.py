"""HTTP/1.1: requests read, answered in order and counted on the short way."""
