"""The commands of `live`."""
