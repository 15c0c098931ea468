// kafkajs.

'use strict'

const { randomUUID } = require('node:crypto')
const zlib = require('node:zlib')
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = require('kafkajs')
const Snappy = require('kafkajs-snappy')
const { acknowledge, batches, emit, encoded, inputEnds, main, transactions } = require('./actions')

CompressionCodecs[CompressionTypes.Snappy] = Snappy
// kafkajs-lz4 has to be compiled; the frames are the same with any implementation, and that one is an ES module.
const lz4 = import('@platformatic/wasm-utils')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => (await lz4).lz4Compress(encoder.buffer),
  decompress: async buffer => (await lz4).lz4Decompress(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zlib.zstdCompressSync(encoder.buffer),
  decompress: async buffer => zlib.zstdDecompressSync(buffer)
})
const CODECS = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }

function connection({ bootstrap, user, password }) {
  const sasl = user ? { mechanism: 'plain', username: user, password } : undefined
  return new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, sasl, retry: { initialRetryTime: 100, retries: 8 } })
}

function codeOf(error) {
  for (let cause = error; cause; cause = cause.cause ?? cause.errors?.[0]) {
    if (Number.isInteger(cause.code)) return cause.code
  }
  return null
}

async function withAdmin(settings, act) {
  const admin = connection(settings).admin()
  await admin.connect()
  try {
    await act(admin)
  } finally {
    await admin.disconnect()
  }
}

async function withProducer(settings, act) {
  const { transactional_id: transactionalId, idempotent } = settings
  const producer = connection(settings).producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    allowAutoTopicCreation: false,
    idempotent: Boolean(idempotent || transactionalId),
    transactionalId,
    maxInFlightRequests: 1
  })
  await producer.connect()
  try {
    await act(producer)
  } finally {
    await producer.disconnect()
  }
}

const messages = batch =>
  batch.map(({ partition, key, value, headers, timestamp_ms: timestamp }) => ({
    partition,
    key,
    value,
    headers: Object.fromEntries(headers),
    timestamp: String(timestamp)
  }))

const seen = (partition, { key, value, headers, offset, timestamp }) => ({
  partition,
  offset: Number(offset),
  timestamp_ms: Number(timestamp),
  key: encoded(key),
  value: encoded(value),
  headers: Object.entries(headers ?? {}).map(([name, data]) => ({ key: name, value: encoded(data) }))
})

function consumerOf(settings, groupId, committed = false) {
  return connection(settings).consumer({
    groupId,
    heartbeatInterval: 200,
    sessionTimeout: 6000,
    rebalanceTimeout: 6000,
    maxWaitTimeInMs: 200,
    readUncommitted: !committed,
    retry: { initialRetryTime: 100, retries: 30 }
  })
}

const actions = {
  create_topic: settings =>
    withAdmin(settings, admin => {
      const configEntries = Object.entries(settings.config ?? {}).map(([name, value]) => ({ name, value }))
      return admin.createTopics({ topics: [{ topic: settings.topic, numPartitions: settings.partitions, configEntries }] })
    }),

  produce: settings =>
    withProducer(settings, async producer => {
      const compression = CompressionTypes[CODECS[settings.codec ?? 'none']]
      for await (const batch of batches()) {
        const done = await producer.send({ topic: settings.topic, acks: -1, compression, messages: messages(batch) })
        acknowledge(batch, done.map(({ partition, baseOffset }) => [partition, BigInt(baseOffset)]))
      }
    }),

  // kafkajs reads in a group only: one of its own, which commits nothing.
  consume: async settings => {
    const left = new Map()
    await withAdmin(settings, async admin => {
      for (const { partition, high } of await admin.fetchTopicOffsets(settings.topic)) {
        if (Number(high) > 0) left.set(partition, Number(high))
      }
    })
    if (left.size === 0) return
    const consumer = consumerOf(settings, `test-reader-${randomUUID()}`, settings.committed)
    await consumer.connect()
    await consumer.subscribe({ topics: [settings.topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          if (!left.has(partition)) return
          emit(seen(partition, message))
          if (Number(message.offset) + 1 >= left.get(partition)) left.delete(partition)
          if (left.size === 0) resolve()
        }
      })
    })
    await consumer.disconnect()
  },

  member: async settings => {
    const consumer = consumerOf(settings, settings.group)
    await consumer.connect()
    await consumer.subscribe({ topics: [settings.topic], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        await consumer.commitOffsets([{ topic, partition, offset: String(BigInt(message.offset) + 1n) }])
        emit(seen(partition, message))
      }
    })
    await inputEnds()
    await consumer.disconnect()
  },

  transact: settings =>
    withProducer(settings, async producer => {
      for await (const { records, commit } of transactions()) {
        const transaction = await producer.transaction()
        await transaction.send({ topic: settings.topic, messages: messages(records) })
        await (commit ? transaction.commit() : transaction.abort())
        emit({ committed: commit })
      }
    }),

  copy: settings =>
    withProducer(settings, async producer => {
      const consumer = consumerOf(settings, settings.group, true)
      await consumer.connect()
      await consumer.subscribe({ topics: [settings.source], fromBeginning: true })
      let copied = 0
      await new Promise((resolve, reject) => {
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
        consumer.run({
          autoCommit: false,
          eachBatch: async ({ batch: { topic, partition, messages: found } }) => {
            const transaction = await producer.transaction()
            const copies = found.map(({ key, value, headers }) => ({ key, value, headers, partition }))
            await transaction.send({ topic: settings.topic, messages: copies })
            const offset = String(BigInt(found[found.length - 1].offset) + 1n)
            const topics = [{ topic, partitions: [{ partition, offset }] }]
            await transaction.sendOffsets({ consumerGroupId: settings.group, topics })
            await transaction.commit()
            copied += found.length
            if (copied >= settings.count) resolve()
          }
        })
      })
      await consumer.disconnect()
      emit({ copied })
    }),

  offsets: settings =>
    withAdmin(settings, async admin => {
      const timed = await admin.fetchTopicOffsetsByTimestamp(settings.topic, settings.timestamp_ms)
      for (const { partition, low, high } of await admin.fetchTopicOffsets(settings.topic)) {
        const found = timed.find(one => one.partition === partition)
        emit({ partition, earliest: Number(low), latest: Number(high), by_time: Number(found.offset) })
      }
    }),

  describe_topic: settings =>
    withAdmin(settings, async admin => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [settings.topic] })
      for (const { partitionId, leader, replicas } of topics[0].partitions) {
        emit({ partition: partitionId, leader, replicas })
      }
    }),

  describe_configs: settings =>
    withAdmin(settings, async admin => {
      const resources = [{ type: ConfigResourceTypes.TOPIC, name: settings.topic }]
      const described = await admin.describeConfigs({ resources })
      for (const { configName, configValue } of described.resources[0].configEntries) {
        emit({ name: configName, value: configValue })
      }
    }),

  alter_config: settings =>
    withAdmin(settings, admin => {
      const configEntries = Object.entries(settings.config).map(([name, value]) => ({ name, value }))
      return admin.alterConfigs({
        resources: [{ type: ConfigResourceTypes.TOPIC, name: settings.topic, configEntries }]
      })
    }),

  list_groups: settings =>
    withAdmin(settings, async admin => {
      for (const { groupId } of (await admin.listGroups()).groups) emit({ group: groupId })
    }),

  group_offsets: settings =>
    withAdmin(settings, async admin => {
      const [found] = await admin.fetchOffsets({ groupId: settings.group, topics: [settings.topic] })
      for (const { partition, offset } of found.partitions) emit({ partition, offset: Number(offset) })
    }),

  delete_group: settings => withAdmin(settings, admin => admin.deleteGroups([settings.group])),
  delete_topic: settings => withAdmin(settings, admin => admin.deleteTopics({ topics: [settings.topic] }))
}

main(actions, codeOf)
