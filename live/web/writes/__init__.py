"""Routes that change something: events, likes, and the routes for administrators."""
