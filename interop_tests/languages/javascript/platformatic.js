// @platformatic/kafka.

'use strict'

const { randomUUID } = require('node:crypto')
const { acknowledge, batches, emit, encoded, inputEnds, main, transactions } = require('./actions')

// The package is an ES module.
const library = import('@platformatic/kafka')

// Producers and members outlive a restart of the broker; administrators are told what is wrong soon.
const PATIENT = 100
const TOPIC_RESOURCE = 2
const SET = 0
const [READ_UNCOMMITTED, READ_COMMITTED] = [0, 1]
const [EARLIEST, LATEST] = [-2n, -1n]

function options({ bootstrap, user, password }) {
  const sasl = user ? { mechanism: 'PLAIN', username: user, password } : undefined
  return { clientId: 'interop', bootstrapBrokers: [bootstrap], sasl, retries: 10, retryDelay: 200 }
}

function codeOf(error) {
  if (Number.isInteger(error?.apiCode)) return error.apiCode
  for (const cause of [error?.cause, ...(error?.errors ?? [])]) {
    const found = cause ? codeOf(cause) : null
    if (found !== null) return found
  }
  return null
}

async function using(client, act) {
  try {
    await act(client)
  } finally {
    await client.close()
  }
}

const withAdmin = async (settings, act) => using(new (await library).Admin(options(settings)), act)

async function withProducer(settings, act) {
  const { transactional_id: transactionalId, idempotent, codec } = settings
  const { Producer } = await library
  const producer = new Producer({
    ...options(settings),
    retries: PATIENT,
    ...(transactionalId ? { transactionalId, idempotent: true } : { idempotent: Boolean(idempotent) }),
    compression: codec ?? 'none',
    autocreateTopics: false
  })
  return using(producer, act)
}

const messages = (topic, batch) =>
  batch.map(({ partition, key, value, headers, timestamp_ms: timestamp }) => ({
    topic,
    partition,
    key: key ?? undefined,
    value: value ?? undefined,
    headers: new Map(headers.map(([name, data]) => [Buffer.from(name), data])),
    timestamp: BigInt(timestamp)
  }))

const seen = ({ partition, key, value, headers, offset, timestamp }) => ({
  partition,
  offset: Number(offset),
  timestamp_ms: Number(timestamp),
  key: encoded(key),
  value: encoded(value),
  headers: [...headers].map(([name, data]) => ({ key: name.toString(), value: encoded(data) }))
})

async function consumerOf(settings, groupId, committed = false) {
  const { Consumer } = await library
  return new Consumer({
    ...options(settings),
    retries: PATIENT,
    groupId,
    autocommit: false,
    heartbeatInterval: 200,
    sessionTimeout: 6000,
    rebalanceTimeout: 6000,
    maxWaitTime: 200,
    isolationLevel: committed ? READ_COMMITTED : READ_UNCOMMITTED
  })
}

// Calls `take` with one message after the other until it returns false, then closes the stream. A stream that is left
// by `break` is destroyed, and the client then fails on the fetch that is under way.
function eachMessage(stream, take) {
  let turn = Promise.resolve(true)
  return new Promise((resolve, reject) => {
    stream.on('error', reject)
    stream.on('close', resolve)
    stream.on('data', message => {
      turn = turn.then(async goesOn => {
        if (goesOn && !(await take(message))) {
          stream.close().catch(reject)
          return false
        }
        return goesOn
      })
      turn.catch(reject)
    })
  })
}

async function partitionsOf(admin, topic) {
  const found = await admin.metadata({ topics: [topic], autocreateTopics: false })
  return found.topics.get(topic).partitions
}

async function offsetsAt(admin, topic, timestamp) {
  const partitions = (await partitionsOf(admin, topic)).map((_, partitionIndex) => ({ partitionIndex, timestamp }))
  const [listed] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
  return new Map(listed.partitions.map(({ partitionIndex, offset }) => [partitionIndex, Number(offset)]))
}

const actions = {
  create_topic: settings =>
    withAdmin(settings, admin => {
      const configs = Object.entries(settings.config ?? {}).map(([name, value]) => ({ name, value }))
      return admin.createTopics({ topics: [settings.topic], partitions: settings.partitions, replicas: 1, configs })
    }),

  produce: settings =>
    withProducer(settings, async producer => {
      for await (const batch of batches()) {
        const { offsets } = await producer.send({ messages: messages(settings.topic, batch), acks: -1 })
        acknowledge(batch, offsets.map(({ partition, offset }) => [partition, offset]))
      }
    }),

  consume: async settings => {
    const left = new Map()
    await withAdmin(settings, async admin => {
      for (const [partition, end] of await offsetsAt(admin, settings.topic, LATEST)) {
        if (end > 0) left.set(partition, end)
      }
    })
    if (left.size === 0) return
    const consumer = await consumerOf(settings, `test-reader-${randomUUID()}`, settings.committed)
    const stream = await consumer.consume({ topics: [settings.topic], mode: 'earliest' })
    await eachMessage(stream, message => {
      if (!left.has(message.partition)) return left.size > 0
      emit(seen(message))
      if (Number(message.offset) + 1 >= left.get(message.partition)) left.delete(message.partition)
      return left.size > 0
    })
    await consumer.close()
  },

  member: async settings => {
    const consumer = await consumerOf(settings, settings.group)
    const stream = await consumer.consume({ topics: [settings.topic], mode: 'committed', fallbackMode: 'earliest' })
    const reading = eachMessage(stream, async message => {
      await message.commit()
      emit(seen(message))
      return true
    })
    await Promise.race([reading, inputEnds()])
    await stream.close()
    await consumer.close()
  },

  transact: settings =>
    withProducer(settings, async producer => {
      for await (const { records, commit } of transactions()) {
        const transaction = await producer.beginTransaction()
        await transaction.send({ messages: messages(settings.topic, records), acks: -1 })
        await (commit ? transaction.commit() : transaction.abort())
        emit({ committed: commit })
      }
    }),

  copy: settings =>
    withProducer(settings, async producer => {
      const consumer = await consumerOf(settings, settings.group, true)
      const stream = await consumer.consume({ topics: [settings.source], mode: 'committed', fallbackMode: 'earliest' })
      let copied = 0
      await eachMessage(stream, async message => {
        const transaction = await producer.beginTransaction()
        await transaction.addConsumer(consumer)
        const { key, value, headers, partition } = message
        await transaction.send({ messages: [{ topic: settings.topic, partition, key, value, headers }], acks: -1 })
        await transaction.addOffset(message)
        await transaction.commit()
        copied += 1
        return copied < settings.count
      })
      await consumer.close()
      emit({ copied })
    }),

  offsets: settings =>
    withAdmin(settings, async admin => {
      const [earliest, latest, timed] = [
        await offsetsAt(admin, settings.topic, EARLIEST),
        await offsetsAt(admin, settings.topic, LATEST),
        await offsetsAt(admin, settings.topic, BigInt(settings.timestamp_ms))
      ]
      for (const [partition, end] of latest) {
        emit({ partition, earliest: earliest.get(partition), latest: end, by_time: timed.get(partition) })
      }
    }),

  describe_topic: settings =>
    withAdmin(settings, async admin => {
      const partitions = await partitionsOf(admin, settings.topic)
      partitions.forEach(({ leader, replicas }, partition) => emit({ partition, leader, replicas }))
    }),

  describe_configs: settings =>
    withAdmin(settings, async admin => {
      const resources = [{ resourceType: TOPIC_RESOURCE, resourceName: settings.topic }]
      const [described] = await admin.describeConfigs({ resources })
      for (const { name, value } of described.configs) emit({ name, value })
    }),

  alter_config: settings =>
    withAdmin(settings, admin => {
      const configs = Object.entries(settings.config).map(([name, value]) => ({ name, value, configOperation: SET }))
      const resources = [{ resourceType: TOPIC_RESOURCE, resourceName: settings.topic, configs }]
      return admin.incrementalAlterConfigs({ resources })
    }),

  list_groups: settings =>
    withAdmin(settings, async admin => {
      for (const group of (await admin.listGroups()).keys()) emit({ group })
    }),

  group_offsets: settings =>
    withAdmin(settings, async admin => {
      const [{ topics }] = await admin.listConsumerGroupOffsets({ groups: [settings.group] })
      for (const { partitionIndex, committedOffset } of topics.find(one => one.name === settings.topic).partitions) {
        emit({ partition: partitionIndex, offset: Number(committedOffset) })
      }
    }),

  delete_group: settings => withAdmin(settings, admin => admin.deleteGroups({ groups: [settings.group] })),
  delete_topic: settings => withAdmin(settings, admin => admin.deleteTopics({ topics: [settings.topic] }))
}

main(actions, codeOf)
