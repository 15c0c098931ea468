"""Calls of the client commands to any Kafka cluster, by kafka-python; `cluster.py` has them for the commands."""
