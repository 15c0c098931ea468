"""One module per API: `handle_<name>` serves the API of that name (`requests.api_table`)."""
