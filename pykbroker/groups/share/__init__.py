"""Share groups (KIP-932): membership and assignment; their records are delivered by share partitions."""
