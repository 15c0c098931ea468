"""Common parts of consumer groups (KIP-848), share groups (KIP-932) and Streams groups (KIP-1071); all are pure."""
