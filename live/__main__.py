"""`python -m live` is the command `live`."""

from live.cli import main

if __name__ == "__main__":
    main()
