"""Client quotas (KIP-13, 124, 219, 546, 599, 612): rates of users, client ids and addresses, and their limits."""
