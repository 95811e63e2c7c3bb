"""What every route uses: responses, middleware, static files, and turns for what is drawn."""
