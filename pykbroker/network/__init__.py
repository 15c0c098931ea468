"""Network layer: listeners, connections, their limits, and the path of one request from frame to reply."""
