"""Pure: metadata records, the cluster image and the commands that change it.

image.py      ClusterImage: state of the cluster after some offset of the metadata log; immutable
commands.py   Command: `plan(image, context) -> Plan(records, result)`; the interfaces that it is given
topics.py configs.py brokers.py producer_id_blocks.py features.py   the commands, with their result types
topic_names.py placement.py elections.py   the rules they share
record_framing.py snapshot.py   records to bytes and back, the image as records

To add a command: a NamedTuple with a `plan` method in the module of its subject, a test, nothing else.
"""
