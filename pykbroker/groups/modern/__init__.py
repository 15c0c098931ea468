"""Common parts of modern groups: consumer (KIP-848), share (KIP-932) and Streams groups (KIP-1071). All are pure."""
