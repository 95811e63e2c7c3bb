"""`python -m live` is the command `live`."""

from live.cli.main import main

if __name__ == "__main__":
    main()
