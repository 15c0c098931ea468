"""Streams groups (KIP-1071): the topology, membership and tasks of Kafka Streams applications."""
