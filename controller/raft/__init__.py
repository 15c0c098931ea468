"""Pure: how the voters agree on one log, in KRaft's terms (KIP-595, KIP-996). Knows nothing of topics, disks, sockets.

Messages and the time go in, one `Output` comes out; what the driver must do with it, in which order, is told in
output.py. Same state, same input, same output: randomness is an argument too.

core.py        RaftCore: the doors (start, step, tick, propose, persisted, resign) and how roles change
election.py    votes asked for and given, with pre-vote
leadership.py  what a leader knows of its followers, and the high watermark
following.py   fetching from a leader, divergence
roles.py       settings, roles, descriptions
log_view.py    offsets and epochs of the log, without its records
quorum.py      replica keys, majorities
messages.py    what nodes say to one another
"""
