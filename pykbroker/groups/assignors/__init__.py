"""Server-side assignors of consumer groups (KIP-848) and share groups (KIP-932); all of it is pure."""
