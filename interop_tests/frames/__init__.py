"""Raw frames: one request and Apache Kafka's reply, byte for byte, per API and version."""
