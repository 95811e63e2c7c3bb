"""Compare a board with its journal, audit it, and measure its memory."""
