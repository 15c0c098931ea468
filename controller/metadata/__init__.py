"""Pure: metadata records, the cluster image and the commands that change it.

image.py      ClusterImage: what the cluster is after some offset of the metadata log; immutable
commands.py   what a command is: `plan(image, context) -> Plan(records, result)`; the interfaces it is given
topics.py configs.py brokers.py producer_id_blocks.py features.py   the commands, with their result types
topic_names.py placement.py elections.py   the rules they share
record_framing.py snapshot.py   records to bytes and back, the image as records

To add a command: a NamedTuple with a `plan` method in the module of its subject, a test, nothing else.
"""
