"""Measurements: what Rejoinder costs and how fast it is. `python -m bench --list`. Never part of the tests."""
