"""The parts that all routes share: responses, middleware, static files, and turns for drawings."""
