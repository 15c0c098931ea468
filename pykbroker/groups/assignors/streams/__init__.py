"""The assignor of tasks of Streams groups (KIP-1071); all of it is pure."""
