"""Groups of the classic protocol: members join, the leader of the group assigns, all of it is pure."""
