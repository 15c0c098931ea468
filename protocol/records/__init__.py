"""Record batches: Kafka's unit of storage and of transfer, as a view over bytes (format v2).

* `layout.py`: the bytes of a batch's header, and the header as a value.
* `batch.py`: `RecordBatch`, the view; `iter_batches`; `build_batch`. Start here.
* `single_batch.py`: the one batch of a partition in a Produce request, with its header.
* `record.py`: single records, for the few places that decode them (replay of internal topics, tools).
* `control.py`: keys and values of control records (transaction markers, Raft).
* `validation.py`: what a leader checks before it stores a client's batch (P-35 to P-41).
* `record_scan.py`: the loops over the records of a batch; compiled by mypyc where a compiler was at hand.
* `key_filter.py`: keys of a batch, and the part of it that a compaction keeps.
* `compression.py`: gzip, snappy, lz4 and zstd by Kafka's ids.
* `checksum.py`: CRC-32C.
* `errors.py`: errors of a batch, each with its Kafka error code.

Nothing is imported here: a broker that never gets a zstd batch never loads zstd.
"""
