"""Completion in a shell: the command `pykbroker completion`, and the words that a command line can go on with."""
