"""Processes and file descriptors of the operating system."""
