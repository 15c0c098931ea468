"""The command `pykbroker start`: one node in this process, or several in processes of their own (`--nodes`).

Every import here counts against the start of a broker (250 ms with the interpreter).
"""
