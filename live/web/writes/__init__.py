"""Routes that change something: events, likes, and what administrators need."""
