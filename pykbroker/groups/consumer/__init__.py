"""Consumer groups (KIP-848): the broker computes assignments and reconciles members to them; all of it is pure."""
