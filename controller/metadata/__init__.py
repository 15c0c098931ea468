"""Metadata records, the cluster image and the commands that change it. Pure.

image.py      ClusterImage: state of the cluster after some offset of the metadata log; immutable
commands.py   Command: `plan(image, context) -> Plan(records, result)`, and the types of its arguments
topics.py configs.py brokers.py producer_id_blocks.py features.py   commands with their result types
topic_names.py placement.py elections.py   rules that several commands share
record_framing.py snapshot.py   records as bytes, the image as records

A new command is a NamedTuple with a `plan` method, in the module of its subject, and a test.
"""
