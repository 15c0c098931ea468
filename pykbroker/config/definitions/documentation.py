"""Descriptions of the keys for users, one sentence each. Only DescribeConfigs imports this module.

Keys that differ in one word (the same setting of another group type, a quota window of another kind) share a sentence
with a placeholder for that word.
"""

from __future__ import annotations

from pykbroker.config.definitions.topic import BROKER_SYNONYMS

TOPIC_DOCUMENTATION: dict[str, str] = {
    "cleanup.policy": "Treatment of old records: delete drops whole segments by age or size, compact keeps the last "
    "record of each key; both may be given, and an empty list keeps everything.",
    "compression.gzip.level": "Level of gzip, from 1 (fast) to 9 (small), -1 for the codec's own default.",
    "compression.lz4.level": "Level of lz4, from 1 (fast) to 17 (small).",
    "compression.type": "Codec in which batches are stored; producer stores them as they were sent, uncompressed "
    "without a codec.",
    "compression.zstd.level": "Level of zstd; larger is smaller and slower.",
    "delete.retention.ms": "Time for which a compacted log keeps the mark of a deleted key, so that a reader that "
    "started at the beginning sees it.",
    "file.delete.delay.ms": "Time for which the files of a removed segment stay on disk under another name.",
    "flush.messages": "Number of records after which the log is forced to disk; the operating system and replication "
    "are usually trusted instead.",
    "flush.ms": "Time after which the log is forced to disk; the operating system and replication are usually trusted "
    "instead.",
    "follower.replication.throttled.replicas": "Replicas whose fetching is slowed down while they catch up: "
    "partition:broker pairs, or * for all.",
    "index.interval.bytes": "Bytes of log between two entries of the offset index.",
    "leader.replication.throttled.replicas": "Replicas whose serving of followers is slowed down: partition:broker "
    "pairs, or * for all.",
    "local.retention.bytes": "Size that a tiered partition may keep on local disk; -2 takes retention.bytes.",
    "local.retention.ms": "Age until which a tiered partition stays on local disk; -2 takes retention.ms.",
    "max.compaction.lag.ms": "Longest time for which a record can stay uncompacted.",
    "max.message.bytes": "Largest record batch, as sent, that is accepted.",
    "message.timestamp.after.max.ms": "Largest time by which a record's timestamp may lie ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "Largest time by which a record's timestamp may lie behind the broker's clock.",
    "message.timestamp.type": "Source of a record's timestamp: the producer (CreateTime) or the broker's clock on "
    "append (LogAppendTime).",
    "min.cleanable.dirty.ratio": "Share of the log that must be uncompacted before the cleaner takes it up.",
    "min.compaction.lag.ms": "Shortest time for which a record stays uncompacted.",
    "min.insync.replicas": "Number of replicas that must be in sync for a write with acks=all to be accepted.",
    "preallocate": "True if a new segment's file is allocated at its full size.",
    "remote.log.copy.disable": "Makes the tiered part of a topic read-only.",
    "remote.log.delete.on.disable": "True if switching tiered storage off deletes what was tiered.",
    "remote.storage.enable": "True if the topic uses tiered storage.",
    "retention.bytes": "Size from which a partition's oldest segments are deleted; -1 is unlimited.",
    "retention.ms": "Age from which a partition's oldest segments are deleted; -1 is unlimited.",
    "segment.bytes": "Size at which a new segment file is begun; deletion and compaction work on whole segments.",
    "segment.index.bytes": "Largest size of the index that belongs to a segment.",
    "segment.jitter.ms": "Random time taken off segment.ms, so that not all partitions roll at once.",
    "segment.ms": "Age at which a new segment is begun even if the old one is not full.",
    "unclean.leader.election.enable": "True if a replica that is not in sync may become leader when no other is left, "
    "which can lose records.",
}

GROUP_DOCUMENTATION: dict[str, str] = {
    "consumer.assignment.interval.ms": "Shortest time between two assignments of a consumer group.",
    "consumer.heartbeat.interval.ms": "Interval at which members of a consumer group send heartbeats.",
    "consumer.session.timeout.ms": "Time without heartbeat after which a consumer group drops a member.",
    "share.assignment.interval.ms": "Shortest time between two assignments of a share group.",
    "share.auto.offset.reset": "Position at which a share group without one begins: latest, earliest or by_duration.",
    "share.delivery.count.limit": "Most deliveries of a record to a share group.",
    "share.heartbeat.interval.ms": "Interval at which members of a share group send heartbeats.",
    "share.isolation.level": "Isolation level of a share group: read_uncommitted also sees records of unfinished "
    "transactions.",
    "share.partition.max.record.locks": "Most records of one partition that a share group may have in work.",
    "share.record.lock.duration.ms": "Time for which a record is reserved for the member that got it.",
    "share.renew.acknowledge.enable": "True if members of a share group may renew their hold on a record.",
    "share.session.timeout.ms": "Time without heartbeat after which a share group drops a member.",
    "streams.assignment.interval.ms": "Shortest time between two assignments of a streams group.",
    "streams.heartbeat.interval.ms": "Interval at which members of a streams group send heartbeats.",
    "streams.initial.rebalance.delay.ms": "Time for which an empty streams group waits for more members before it "
    "assigns.",
    "streams.num.standby.replicas": "Standby copies of each stateful task of a streams group.",
    "streams.session.timeout.ms": "Time without heartbeat after which a streams group drops a member.",
    "interval.ms": "Interval at which a client pushes the metrics of this subscription.",
    "match": "Clients that the subscription is for: selectors such as client_id=regex.",
    "metrics": "Prefixes of the metrics that the subscription asks for.",
}

_BROKER_DOCUMENTATION: dict[str, str] = {
    "add.partitions.to.txn.retry.backoff.max.ms": "Longest wait for an ending transaction before a partition is added.",
    "add.partitions.to.txn.retry.backoff.ms": "Longest pause before adding a partition to a transaction is retried.",
    "advertised.listeners": "Addresses that clients get in Metadata, per listener; without it those of listeners. "
    "In place of a host that means every address they get the name of the machine, from a broker that is alone the "
    "host that they connected to.",
    "alter.config.policy.class.name": "Java class that accepts or refuses changes of configs.",
    "authorizer.class.name": "Class that decides which principal may do which operation; empty allows everything.",
    "auto.create.topics.enable": "True if a topic that a client names is created when it does not exist.",
    "auto.leader.rebalance.enable": "True if leadership goes back to preferred replicas by itself.",
    "background.threads": "Threads for background work.",
    "broker.heartbeat.interval.ms": "Interval at which a broker tells the controller that it is alive.",
    "broker.id": "Older name of node.id.",
    "broker.rack": "Rack or zone of this broker, for the placement of replicas and for reads nearby.",
    "broker.session.timeout.ms": "Time without heartbeat after which the controller fences a broker.",
    "client.quota.callback.class": "Java class that computes client quotas.",
    "config.providers": "Names of providers that replace variables in config values.",
    "connection.failed.authentication.delay.ms": "Time for which the answer to a failed authentication is held back.",
    "connections.max.idle.ms": "Time after which a connection without traffic is closed.",
    "connections.max.reauth.ms": "Time for which an authenticated session lasts; 0 is for ever.",
    "controlled.shutdown.enable": "True if a broker hands over its leaderships before it stops.",
    "controller.listener.names": "Listeners that belong to the controller, separated by commas.",
    "controller.quorum.append.linger.ms": "Time for which metadata writes are gathered before they go to disk; "
    "not at all where this is not given: each command would take that much longer.",
    "controller.quorum.auto.join.enable": "True if a controller joins the quorum as a voter by itself.",
    "controller.quorum.bootstrap.servers": "Addresses at which the quorum can be found.",
    "controller.quorum.election.backoff.max.ms": "Longest time for which a controller waits before it stands for "
    "election when a leader that resigns prefers others.",
    "controller.quorum.election.timeout.ms": "Time for which a candidate waits for votes before it begins a new "
    "election.",
    "controller.quorum.fetch.max.bytes": "Most bytes of the metadata log that one fetch brings.",
    "controller.quorum.fetch.snapshot.max.bytes": "Most bytes of a metadata snapshot that one fetch brings.",
    "controller.quorum.fetch.timeout.ms": "Time for which a follower does without its leader, and a leader without a "
    "majority, before there is an election.",
    "controller.quorum.request.timeout.ms": "Longest time that a request within the quorum may take.",
    "controller.quorum.retry.backoff.ms": "Wait before a failed request within the quorum is sent again.",
    "controller.quorum.voters": "The quorum's voters as id@host:port, separated by commas.",
    "controller.socket.timeout.ms": "Socket timeout of the channels between controller and brokers.",
    "cordoned.log.dirs": "Log directories that take no new replicas.",
    "create.topic.policy.class.name": "Java class that accepts or refuses new topics.",
    "default.replication.factor": "Replicas of a topic that does not ask for a number.",
    "delegation.token.expiry.check.interval.ms": "Interval at which expired delegation tokens are removed.",
    "delegation.token.expiry.time.ms": "Time for which a delegation token lasts without renewal.",
    "delegation.token.max.lifetime.ms": "Time for which a delegation token lasts in all.",
    "delegation.token.secret.key": "Secret with which delegation tokens are signed.",
    "delete.records.purgatory.purge.interval.requests": "Number of finished DeleteRecords waits that are gathered "
    "before they are cleared.",
    "delete.topic.enable": "True if topics can be deleted.",
    "early.start.listeners": "Listeners that open before authorization is ready.",
    "fetch.max.bytes": "Largest answer to one fetch; a first batch that is larger is sent all the same.",
    "fetch.purgatory.purge.interval.requests": "Number of finished Fetch waits that are gathered before they are "
    "cleared.",
    "follower.fetch.last.tiered.offset.enable": "True if a new follower begins at the last tiered offset.",
    "group.consumer.assignors": "Assignors that consumer groups may use, the first one by default.",
    "group.consumer.migration.policy": "Directions in which groups may change between the classic and the consumer "
    "protocol.",
    "group.coordinator.append.linger.ms": "Time for which the coordinator gathers writes; -1 adapts to the load.",
    "group.coordinator.background.threads": "Threads for background work of the group coordinator.",
    "group.coordinator.cached.buffer.max.bytes": "Largest write buffer that the group coordinator keeps.",
    "group.coordinator.rebalance.protocols": "Group protocols that are served.",
    "group.coordinator.threads": "Threads of the group coordinator.",
    "group.initial.rebalance.delay.ms": "Time for which an empty group waits for more members before its first "
    "rebalance.",
    "group.max.session.timeout.ms": "Longest session timeout that a member may ask for.",
    "group.max.size": "Most members that a group may have.",
    "group.min.session.timeout.ms": "Shortest session timeout that a member may ask for.",
    "group.share.assignors": "Assignors that share groups may use.",
    "group.share.max.share.sessions": "Most share sessions that a broker keeps.",
    "group.streams.initial.rebalance.delay.ms": "Time for which an empty streams group waits before it assigns.",
    "group.streams.max.standby.replicas": "Most standby copies that a streams group may ask for.",
    "group.streams.num.standby.replicas": "Standby copies of each stateful task of a streams group.",
    "initial.broker.registration.timeout.ms": "Time for which a starting broker tries to register.",
    "inter.broker.listener.name": "Listener over which brokers speak with each other.",
    "kafka.metrics.polling.interval.secs": "Interval at which metrics reporters are polled.",
    "kafka.metrics.reporters": "Java classes that report metrics.",
    "leader.imbalance.check.interval.seconds": "Interval at which the controller looks whether leaders are well "
    "spread.",
    "listener.security.protocol.map": "Security protocol of each listener name.",
    "listeners": "Addresses to listen on, as NAME://host:port; an empty host is every address, port 0 a free one.",
    "log.cleaner.backoff.ms": "Time for which the cleaner rests when there is nothing to compact.",
    "log.cleaner.dedupe.buffer.size": "Memory in which the cleaners remember keys.",
    "log.cleaner.enable": "True if compaction runs.",
    "log.cleaner.io.buffer.load.factor": "Share of the cleaner's table of keys that may be filled.",
    "log.cleaner.io.buffer.size": "Memory through which the cleaners read and write.",
    "log.cleaner.io.max.bytes.per.second": "Most bytes per second that the cleaners read and write.",
    "log.cleaner.threads": "Threads that compact.",
    "log.dir": "Directory of the data when log.dirs is not set.",
    "log.dir.failure.timeout.ms": "Time for which a failed log directory may stay unreported before the broker stops.",
    "log.dirs": "Directories of the data, separated by commas.",
    "log.flush.offset.checkpoint.interval.ms": "Interval at which the recovery points are written down.",
    "log.flush.scheduler.interval.ms": "Interval at which it is looked whether a log must be forced to disk.",
    "log.flush.start.offset.checkpoint.interval.ms": "Interval at which the start offsets of the logs are written "
    "down.",
    "log.retention.check.interval.ms": "Interval at which it is looked whether segments can be deleted.",
    "log.retention.hours": "As log.retention.ms, in hours; the finest unit that is set counts.",
    "log.retention.minutes": "As log.retention.ms, in minutes; the finest unit that is set counts.",
    "log.roll.hours": "As log.roll.ms, in hours; log.roll.ms counts if it is set.",
    "log.roll.jitter.hours": "As log.roll.jitter.ms, in hours; log.roll.jitter.ms counts if it is set.",
    "max.connection.creation.rate": "Most new connections per second.",
    "max.connections": "Most connections at a time.",
    "max.connections.per.ip": "Most connections from one address.",
    "max.connections.per.ip.overrides": "Other limits than max.connections.per.ip for some addresses, as host:count.",
    "max.incremental.fetch.session.cache.slots": "Most incremental fetch sessions that are kept.",
    "max.request.partition.size.limit": "Most partitions in one answer to DescribeTopicPartitions.",
    "metadata.log.dir": "Directory of the metadata log; by default the first of log.dirs.",
    "metadata.log.max.record.bytes.between.snapshots": "Bytes by which the metadata log grows before a snapshot is "
    "made.",
    "metadata.log.max.snapshot.interval.ms": "Time that passes before a snapshot of the metadata is made.",
    "metadata.log.segment.bytes": "Size at which the metadata log begins a new segment.",
    "metadata.log.segment.ms": "Age at which the metadata log begins a new segment.",
    "metadata.max.idle.interval.ms": "Interval at which an idle controller writes an empty record; 0 is never.",
    "metadata.max.retention.bytes": "Size from which old metadata snapshots and log are deleted.",
    "metadata.max.retention.ms": "Age from which old metadata snapshots and log are deleted.",
    "metric.reporters": "Classes that report metrics; `module:Class` receives those of clients (KIP-714).",
    "metrics.num.samples": "Samples from which a metric is worked out.",
    "metrics.recording.level": "Finest level of metrics that is recorded.",
    "metrics.sample.window.ms": "Length of one sample of a metric.",
    "node.id": "Number of this node, unique in the cluster.",
    "num.io.threads": "Threads that serve requests.",
    "num.network.threads": "Threads that read requests and write answers.",
    "num.partitions": "Partitions of a topic that does not ask for a number.",
    "num.recovery.threads.per.data.dir": "Threads per data directory that open logs at start.",
    "num.replica.alter.log.dirs.threads": "Threads that move replicas between directories.",
    "num.replica.fetchers": "Fetchers per broker from which this one copies.",
    "offset.metadata.max.bytes": "Largest text that may be stored with a committed offset.",
    "offsets.commit.timeout.ms": "Time for which a commit of offsets waits for its replicas.",
    "offsets.load.buffer.size": "Bytes that are read at once when committed offsets are loaded.",
    "offsets.retention.check.interval.ms": "Interval at which expired offsets are looked for.",
    "offsets.retention.minutes": "Time for which offsets are kept once their group is empty.",
    "offsets.topic.compression.codec": "Codec of the offsets topic, by number.",
    "offsets.topic.num.partitions": "Partitions of the offsets topic; not to be changed once it exists.",
    "offsets.topic.replication.factor": "Replicas of the offsets topic; here never more than there are brokers.",
    "offsets.topic.segment.bytes": "Segment size of the offsets topic.",
    "principal.builder.class": "Java class that makes principals of connections.",
    "process.roles": "Roles of this process: broker, controller or both.",
    "producer.id.expiration.ms": "Time for which the state of an idle producer id is kept.",
    "producer.purgatory.purge.interval.requests": "Number of finished Produce waits that are gathered before clearing.",
    "queued.max.request.bytes": "Bytes of waiting requests from which no more are read; -1 is no limit.",
    "queued.max.requests": "Waiting requests from which no more are read.",
    "remote.fetch.max.wait.ms": "Time for which a fetch waits for tiered storage.",
    "remote.list.offsets.request.timeout.ms": "Time for which ListOffsets waits for tiered storage.",
    "remote.log.index.file.cache.total.size.bytes": "Local space for indexes of tiered segments.",
    "remote.log.manager.copier.thread.pool.size": "Threads that copy segments to tiered storage.",
    "remote.log.manager.copy.max.bytes.per.second": "Most bytes per second that are copied to tiered storage.",
    "remote.log.manager.expiration.thread.pool.size": "Threads that delete expired tiered segments.",
    "remote.log.manager.fetch.max.bytes.per.second": "Most bytes per second that are read from tiered storage.",
    "remote.log.manager.follower.thread.pool.size": "Threads that follow tiered partitions.",
    "remote.log.manager.task.interval.ms": "Interval at which tiered storage looks for work.",
    "remote.log.manager.thread.pool.size": "Threads of tiered storage.",
    "remote.log.metadata.custom.metadata.max.bytes": "Largest extra data that a tiered storage plugin may keep.",
    "remote.log.metadata.manager.class.name": "Java class that keeps the metadata of tiered storage.",
    "remote.log.metadata.manager.class.path": "Place from which the metadata manager of tiered storage is loaded.",
    "remote.log.metadata.manager.impl.prefix": "Prefix of the keys that the metadata manager of tiered storage gets.",
    "remote.log.metadata.manager.listener.name": "Listener that the metadata manager of tiered storage uses.",
    "remote.log.reader.max.pending.tasks": "Most waiting reads from tiered storage.",
    "remote.log.reader.threads": "Threads that read from tiered storage.",
    "remote.log.storage.manager.class.name": "Java class of the tiered storage.",
    "remote.log.storage.manager.class.path": "Place from which the tiered storage class is loaded.",
    "remote.log.storage.manager.impl.prefix": "Prefix of the keys that the tiered storage class gets.",
    "remote.log.storage.system.enable": "True if tiered storage is there at all.",
    "replica.fetch.backoff.ms": "Wait after a failed fetch of a follower.",
    "replica.fetch.max.bytes": "Bytes that a follower asks for per partition.",
    "replica.fetch.min.bytes": "Least answer for which a follower's fetch waits.",
    "replica.fetch.response.max.bytes": "Largest answer to a follower's fetch.",
    "replica.fetch.wait.max.ms": "Longest time for which a follower's fetch waits.",
    "replica.high.watermark.checkpoint.interval.ms": "Interval at which high watermarks are written down.",
    "replica.lag.time.max.ms": "Time for which a follower may lag behind before it leaves the in-sync set.",
    "replica.selector.class": "Java class that chooses the replica from which a consumer reads.",
    "replica.socket.receive.buffer.bytes": "Receive buffer of the sockets between brokers.",
    "replica.socket.timeout.ms": "Timeout of requests between brokers.",
    "request.timeout.ms": "Time for which the broker waits for answers of others.",
    "sasl.client.callback.handler.class": "Java class with callbacks of the SASL client side.",
    "sasl.enabled.mechanisms": "SASL mechanisms that clients may choose from.",
    "sasl.jaas.config": "JAAS login of a SASL mechanism, for example the users of PLAIN.",
    "sasl.kerberos.kinit.cmd": "Path of the kinit program.",
    "sasl.kerberos.min.time.before.relogin": "Least time between two Kerberos logins.",
    "sasl.kerberos.principal.to.local.rules": "Rules that make short names of Kerberos principals.",
    "sasl.kerberos.service.name": "Kerberos service name of the broker.",
    "sasl.kerberos.ticket.renew.jitter": "Share of random time in the renewal of a Kerberos ticket.",
    "sasl.kerberos.ticket.renew.window.factor": "Share of a Kerberos ticket's life after which it is renewed.",
    "sasl.login.callback.handler.class": "Java class with callbacks of the SASL login.",
    "sasl.login.class": "Java class of the SASL login.",
    "sasl.login.connect.timeout.ms": "Longest time that a connection to the identity provider may take to open.",
    "sasl.login.read.timeout.ms": "Longest time that an answer of the identity provider may take.",
    "sasl.login.refresh.buffer.seconds": "Time before a credential's end that is kept free when it is refreshed.",
    "sasl.login.refresh.min.period.seconds": "Least time before a credential is refreshed.",
    "sasl.login.refresh.window.factor": "Share of a credential's life after which it is refreshed.",
    "sasl.login.refresh.window.jitter": "Share of random time in the refresh of a credential.",
    "sasl.login.retry.backoff.max.ms": "Longest wait between two tries to log in.",
    "sasl.login.retry.backoff.ms": "First wait between two tries to log in.",
    "sasl.mechanism.controller.protocol": "SASL mechanism between brokers and controllers.",
    "sasl.mechanism.inter.broker.protocol": "SASL mechanism between brokers.",
    "sasl.server.callback.handler.class": "Java class with callbacks of the SASL server side.",
    "sasl.server.max.receive.size": "Largest message that is read before authentication is done.",
    "security.inter.broker.protocol": "Security protocol between brokers, when inter.broker.listener.name is not set.",
    "security.providers": "Java classes of further security providers.",
    "share.coordinator.append.linger.ms": "Time for which the share coordinator gathers writes; -1 adapts to the load.",
    "share.coordinator.cached.buffer.max.bytes": "Largest write buffer that the share coordinator keeps.",
    "share.coordinator.load.buffer.size": "Bytes that are read at once when share group state is loaded.",
    "share.coordinator.snapshot.update.records.per.snapshot": "Updates between two snapshots of share group state.",
    "share.coordinator.state.topic.compression.codec": "Codec of the share group state topic, by number.",
    "share.coordinator.state.topic.min.isr": "Least in-sync replicas of the share group state topic.",
    "share.coordinator.state.topic.num.partitions": "Partitions of the share group state topic.",
    "share.coordinator.state.topic.replication.factor": "Replicas of the share group state topic.",
    "share.coordinator.state.topic.segment.bytes": "Segment size of the share group state topic.",
    "share.coordinator.threads": "Threads of the share coordinator.",
    "share.coordinator.write.timeout.ms": "Time for which a write of share group state waits for its replicas.",
    "share.fetch.purgatory.purge.interval.requests": "Number of finished ShareFetch waits that are gathered before "
    "they are cleared.",
    "socket.connection.setup.timeout.max.ms": "Longest time that the opening of a connection to another node may take.",
    "socket.connection.setup.timeout.ms": "First time that the opening of a connection to another node may take.",
    "socket.listen.backlog.size": "Connections that may wait to be accepted.",
    "socket.receive.buffer.bytes": "Receive buffer of the sockets; -1 leaves it to the operating system.",
    "socket.request.max.bytes": "Largest request that is read.",
    "socket.send.buffer.bytes": "Send buffer of the sockets; -1 leaves it to the operating system.",
    "ssl.allow.dn.changes": "True if a reloaded certificate may have another distinguished name.",
    "ssl.allow.san.changes": "True if a reloaded certificate may lack alternative names that the old one had.",
    "ssl.cipher.suites": "TLS cipher suites that are allowed; empty is the default set.",
    "ssl.client.auth": "Certificates of clients: required, requested or none.",
    "ssl.enabled.protocols": "TLS versions that are allowed.",
    "ssl.endpoint.identification.algorithm": "Algorithm that checks the host name of a server certificate.",
    "ssl.engine.factory.class": "Java class that makes TLS engines.",
    "ssl.key.password": "Password of the private key.",
    "ssl.keymanager.algorithm": "Algorithm of the key manager.",
    "ssl.keystore.certificate.chain": "Certificate chain as PEM text.",
    "ssl.keystore.key": "Private key as PEM text.",
    "ssl.keystore.location": "File of the key store.",
    "ssl.keystore.password": "Password of the key store.",
    "ssl.keystore.type": "Format of the key store.",
    "ssl.principal.mapping.rules": "Rules that make short names of certificate subjects.",
    "ssl.protocol": "TLS version with which contexts are made.",
    "ssl.provider": "Security provider of TLS connections.",
    "ssl.secure.random.implementation": "Random number generator of TLS.",
    "ssl.trustmanager.algorithm": "Algorithm of the trust manager.",
    "ssl.truststore.certificates": "Trusted certificates as PEM text.",
    "ssl.truststore.location": "File of the trust store.",
    "ssl.truststore.password": "Password of the trust store.",
    "ssl.truststore.type": "Format of the trust store.",
    "telemetry.max.bytes": "Largest push of client metrics.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "Interval at which transactions that took too long "
    "are aborted.",
    "transaction.max.timeout.ms": "Longest transaction timeout that a producer may ask for.",
    "transaction.partition.verification.enable": "True if a partition asks the coordinator before it takes records of "
    "a transaction.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "Interval at which expired transactional ids are "
    "removed.",
    "transaction.state.log.load.buffer.size": "Bytes that are read at once when transaction state is loaded.",
    "transaction.state.log.min.isr": "Least in-sync replicas of the transaction topic.",
    "transaction.state.log.num.partitions": "Partitions of the transaction topic; not to be changed once it exists.",
    "transaction.state.log.replication.factor": "Replicas of the transaction topic; here never more than there are "
    "brokers.",
    "transaction.state.log.segment.bytes": "Segment size of the transaction topic.",
    "transaction.two.phase.commit.enable": "True if producers may take part in two-phase commit.",
    "transactional.id.expiration.ms": "Time for which an unused transactional id is kept.",
}

_OAUTH_DOCUMENTATION: dict[str, str] = {
    "assertion.algorithm": "algorithm that signs the client assertion.",
    "assertion.claim.aud": "audience claim of the client assertion.",
    "assertion.claim.exp.seconds": "life of the client assertion.",
    "assertion.claim.iss": "issuer claim of the client assertion.",
    "assertion.claim.jti.include": "true if the client assertion has an id of its own.",
    "assertion.claim.nbf.seconds": "time before the present from which on the client assertion is valid.",
    "assertion.claim.sub": "subject claim of the client assertion.",
    "assertion.file": "file with a ready client assertion.",
    "assertion.private.key.file": "file of the private key that signs the client assertion.",
    "assertion.private.key.passphrase": "passphrase of that private key.",
    "assertion.template.file": "file with further claims of the client assertion.",
    "client.credentials.client.id": "client id of the client credentials grant.",
    "client.credentials.client.secret": "client secret of the client credentials grant.",
    "clock.skew.seconds": "difference of clocks that is tolerated.",
    "expected.audience": "audiences that a token may have.",
    "expected.issuer": "issuer that a token must have.",
    "jwks.endpoint.refresh.ms": "interval at which the signing keys are fetched again.",
    "jwks.endpoint.retry.backoff.max.ms": "longest wait between two tries to fetch the signing keys.",
    "jwks.endpoint.retry.backoff.ms": "first wait between two tries to fetch the signing keys.",
    "jwks.endpoint.url": "URL of the signing keys.",
    "jwt.retriever.class": "Java class that gets tokens.",
    "jwt.validator.class": "Java class that checks tokens.",
    "scope": "scope that is asked for.",
    "scope.claim.name": "name of the claim with the scope.",
    "sub.claim.name": "name of the claim with the subject.",
    "token.endpoint.url": "URL at which tokens are issued.",
}

_GROUP_KINDS = {"consumer": "consumer", "share": "share", "streams": "streams"}

# The part of "group.<kind>.<part>" after an optional "min." or "max.".
_GROUP_PARTS: dict[str, str] = {
    "assignment.interval.ms": "time between two assignments of a {} group",
    "delivery.count.limit": "number of deliveries of one record to a {} group",
    "heartbeat.interval.ms": "heartbeat interval of members of a {} group",
    "partition.max.record.locks": "number of records of a partition that a {} group may have in work",
    "record.lock.duration.ms": "time for which a record is reserved in a {} group",
    "session.timeout.ms": "session timeout of a {} group",
    "size": "number of members of a {} group",
}

_QUOTA_KINDS = {
    "": "client quotas",
    "alter.log.dirs.replication.": "the throttling of moves between directories",
    "controller.": "the quota of controller changes",
    "replication.": "the throttling of replication",
    "remote.log.manager.copy.": "the limit of copies to tiered storage",
    "remote.log.manager.fetch.": "the limit of reads from tiered storage",
}

_SYNONYM_DOCUMENTATION = {
    broker_key: topic_key for topic_key, synonyms in BROKER_SYNONYMS.items() for broker_key in reversed(synonyms)
}


def topic_documentation(name: str) -> str | None:
    """The sentence for a topic key; None for an unknown one."""
    return TOPIC_DOCUMENTATION.get(name)


def broker_documentation(name: str) -> str | None:
    """The sentence for a broker key; None for an unknown one."""
    text = _BROKER_DOCUMENTATION.get(name)
    if text is not None:
        return text
    topic_key = _SYNONYM_DOCUMENTATION.get(name)
    if topic_key is not None:
        return f"Default of {topic_key} for topics that do not set it. {TOPIC_DOCUMENTATION[topic_key]}"
    if name.startswith("sasl.oauthbearer."):
        oauth = _OAUTH_DOCUMENTATION.get(name.removeprefix("sasl.oauthbearer."))
        return None if oauth is None else f"OAUTHBEARER: {oauth}"
    return _group_documentation(name) or _quota_documentation(name)


def _group_documentation(name: str) -> str | None:
    prefix, _, rest = name.partition(".")
    kind, _, part = rest.partition(".")
    if prefix != "group" or kind not in _GROUP_KINDS:
        return None
    for bound, word in (("min.", "Least"), ("max.", "Most"), ("", "Default")):
        if part.startswith(bound):
            text = _GROUP_PARTS.get(part.removeprefix(bound))
            if text is not None:
                return f"{word} {text.format(_GROUP_KINDS[kind])}."
    return None


def _quota_documentation(name: str) -> str | None:
    for ending, text in (
        ("quota.window.num", "Windows that are kept for {}."),
        ("quota.window.size.seconds", "Length of a window of {}."),
    ):
        if name.endswith(ending):
            return text.format(_QUOTA_KINDS[name.removesuffix(ending)])
    return None
