"""The table of APIs, and what their handlers share."""
