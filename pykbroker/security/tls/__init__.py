"""TLS of listeners and of connections between nodes. Only nodes with an SSL or SASL_SSL listener import it."""
