"""The cluster as this node sees it: the metadata cache, its addresses, and requests to the active controller."""
