"""The metadata quorum: the state of the cluster, replicated by Raft as Kafka's own metadata records.

raft/             pure: agreement of the voters on a log, by KRaft's rules; independent of its content
metadata/         pure: metadata records, the immutable cluster image, commands that are planned into records
raft_storage.py   the files of a replica: the log, quorum_state_file.py, snapshot_file.py
settings.py       settings of a node, fixed at its start
node.py           one node in trio: drives the two pure parts with timers, disk and peers; its parts are raft_driver.py,
                  command_queue.py, image_publisher.py, snapshot_generator.py and snapshot_installer.py
active_controller.py   the duties of the node that leads: broker_heartbeats.py, broker_session_commands.py
peers.py          raft's messages to other nodes, as Kafka's requests: peer_links.py, raft_wire.py, node_client.py
running_time.py, running_clock.py   time without the stalls of this process

raft and metadata do not import each other; node.py joins them.
"""
