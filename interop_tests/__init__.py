"""Stock Kafka clients and tools against a broker process over TCP; imports nothing of pykbroker."""
