"""KRaft's consensus on the metadata log as a pure state machine, without topics, disks or sockets.

The terms are those of KIP-595, KIP-853 and KIP-996.

In the shape of etcd's raft: messages and the time go in, by `step` and `tick` of RaftCore, and one `Output` comes out.
output.py says what the driver must do with it, in which order. Same state and same input give the same output:
randomness is an argument too.

core.py            RaftCore: step, tick, transitions between roles
replica.py         Replica: the state that all roles share; RoleState: the base of the roles
follower.py        Follower, Unattached; BeginQuorumEpoch and EndQuorumEpoch requests
election.py        Prospective, Candidate; Vote requests
leader.py          Leader: Fetch requests and the high watermark; progress.py: end offset and fetch times of a replica
resigned.py        Resigned; the EndQuorumEpoch requests of a leader that resigned
voter_changes.py   VoterChanges: the leader's changes of the voters; voter_history.py: the voters by offset
messages.py        messages between nodes; local_messages.py: messages to the state machine from its own node
output.py          Output, and the contract with the driver
log_view.py        offsets and epochs of the log, without its records
quorum.py          replica keys, voters, majorities
roles.py           settings, names of roles, descriptions
"""
