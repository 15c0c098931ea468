"""Kafka's settings: definitions, parsing, checks, and their form in DescribeConfigs."""
