"""Parts that consumer groups (KIP-848) and share groups (KIP-932) have in common; all of it is pure."""
