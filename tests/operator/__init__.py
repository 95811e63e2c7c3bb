"""An operator's day: the files of `ops` and the commands of the documentation, run as the user of the service."""
