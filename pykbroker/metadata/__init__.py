"""This broker's view of the cluster: the metadata cache, the addresses in it, and requests to the active controller."""
