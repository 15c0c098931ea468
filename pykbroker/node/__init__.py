"""Composition of one node: its broker, its controller, its part in the metadata quorum, and the machine it runs on."""
