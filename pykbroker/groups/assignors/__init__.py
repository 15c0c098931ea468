"""Server-side assignors of consumer groups (KIP-848); all of it is pure."""
