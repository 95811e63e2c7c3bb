"""Turns the body of a POST or a message into counted events and an answer, for every transport."""
