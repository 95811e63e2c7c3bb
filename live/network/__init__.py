"""What the headers of a request say about its client, its host and its proxies. No I/O."""
