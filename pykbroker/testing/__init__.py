"""Brokers and clusters as processes of a test suite, a notebook or a script."""
