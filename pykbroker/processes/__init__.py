"""Processes of brokers: starting them in an interpreter of their own or as forks, and following them to their end."""
