"""Sockets: ports, connections, limits on both, and the way of one request from frame to reply."""
