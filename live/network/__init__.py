"""What a request says of its client, host and proxies. No I/O."""
