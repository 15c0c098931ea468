"""Measurements of a broker process from outside, beside Apache Kafka's: start-up, idle cost, throughput, latency."""
