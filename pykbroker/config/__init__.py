"""Kafka's settings: definitions, parsing, checks, and how DescribeConfigs shows them."""
