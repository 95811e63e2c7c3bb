"""HTML pages for people, in the languages of the server."""
