// What the programs of all JavaScript clients share: settings, lines of JSON, and how an action ends. ../README.md says
// what each action takes and prints.
//
//     node CLIENT.js ACTION '{"bootstrap": "127.0.0.1:9092", "topic": "t"}'

'use strict'

const readline = require('node:readline')

const encoded = data => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))
const decoded = text => (text === null || text === undefined ? null : Buffer.from(text, 'base64'))

function emit(line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

function lines() {
  return readline.createInterface({ input: process.stdin })
}

function recordOf(line) {
  const record = JSON.parse(line)
  record.key = decoded(record.key)
  record.value = decoded(record.value)
  record.headers = record.headers.map(header => [header.key, decoded(header.value)])
  return record
}

// Batches of records on standard input; an empty line ends each.
async function* batches() {
  let batch = []
  for await (const line of lines()) {
    if (line !== '') {
      batch.push(recordOf(line))
      continue
    }
    yield batch
    batch = []
  }
}

async function* transactions() {
  for await (const line of lines()) {
    const { records, commit } = JSON.parse(line)
    yield { records: records.map(record => recordOf(JSON.stringify(record))), commit }
  }
}

function inputEnds() {
  return new Promise(resolve => process.stdin.on('close', resolve).on('end', resolve).resume())
}

// Prints acknowledgements of records that were sent together, from the base offset of each partition.
function acknowledge(batch, baseOffsets) {
  const next = new Map(baseOffsets)
  for (const { partition } of batch) {
    const offset = next.get(partition)
    emit({ partition, offset: Number(offset) })
    next.set(partition, offset + 1n)
  }
}

// Runs the action that the command line names. `codeOf` finds the code of Kafka's protocol in an error, or null.
async function main(actions, codeOf) {
  const [name, settings] = process.argv.slice(2)
  const action = actions[name]
  if (action === undefined) {
    process.stderr.write(`there is no action ${name}\n`)
    process.exit(2)
  }
  let code = 0
  try {
    await action(JSON.parse(settings))
  } catch (error) {
    if (process.env.INTEROP_TRACE) process.stderr.write(`${error.stack}\n`)
    emit({ error: codeOf(error), message: String(error.message) })
    code = 1
  }
  // Clients may keep timers or threads: what was printed is written first.
  process.stdout.write('', () => process.exit(code))
}

module.exports = { acknowledge, batches, emit, encoded, inputEnds, main, transactions }
