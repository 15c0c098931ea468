"""The command `pykbroker dump-log`: contents of the files of a data directory."""
