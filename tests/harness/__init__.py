"""What the tests share: stores, servers, viewers, producers, models and the runner of mutants."""
