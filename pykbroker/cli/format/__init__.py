"""The command `pykbroker format`: a data directory before the first start."""
