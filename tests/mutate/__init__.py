"""`make mutate`: random mistakes in `live/`, and the tests that notice them."""
