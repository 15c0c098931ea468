"""Metadata records, the cluster image and the commands that change it. Pure.

image.py           ClusterImage: state of the cluster after some offset of the metadata log; immutable
image_builder.py   the next image from an image and records; image_delta.py: what differs between two images
commands.py        Command: `plan(image, context) -> Plan(records, result)`, and the types of its arguments
bootstrap.py       the first records of a new cluster
record_framing.py  records as bytes; snapshot.py: the image as records

Commands, with their result types:
topics.py, configs.py, features.py, acls.py, scram.py, delegation_tokens.py, client_quotas.py, producer_id_blocks.py
brokers.py, with endpoints_and_features.py; directory_assignments.py
alter_partition.py, elect_leaders.py, reassignments.py

Rules that several commands share:
topic_names.py, placement.py, metadata_versions.py
partition_changes.py, with eligible_replicas.py, for every change of a partition's leader, replicas or in-sync set
broker_elections.py and periodic_elections.py for elections that no request asks for

A new command is a NamedTuple with a `plan` method, in the module of its subject, and a test.
"""
