"""The table of APIs, and code that the handlers share."""
