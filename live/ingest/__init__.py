"""From the bytes of a POST to its answer, whatever carried them."""
