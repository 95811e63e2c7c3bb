"""Read pages, slots and baselines of a board."""
