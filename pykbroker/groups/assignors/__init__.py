"""Server-side assignors of consumer, share and Streams groups; all of it is pure."""
