"""A whole cluster in one thread, from one seed. See README.md."""
