"""Tests mirror `live/` one to one; beside them: properties, faults, browser, contract, real input."""
