// The load generator for BullMQ: the same closed loop, the same specification on standard input and
// the same figures on standard output as `load` has.
import { readFileSync } from 'node:fs';

import { Queue, QueueEvents } from 'bullmq';
import Redis from 'ioredis';

const spec = JSON.parse(readFileSync(0, 'utf8'));
const { port, queue: name } = spec.rival;
const RESULT_MS_MAX = 120_000;
const EXAMPLES_MAX = 3;
// `/proc` counts in hundredths of a second on every architecture.
const MS_PER_TICK = 10;

const connection = new Redis({ host: '127.0.0.1', port, maxRetriesPerRequest: null });
const queue = new Queue(name, { connection });
const events = new QueueEvents(name, { connection });
// Every client waits for a result at the same time.
queue.setMaxListeners(0);
events.setMaxListeners(0);
await events.waitUntilReady();

const now = () => Number(process.hrtime.bigint() / 1000n);

function reading() {
  const lines = readFileSync('/proc/stat', 'utf8').split('\n');
  const fields = lines[0].split(/\s+/).slice(1).map(Number);
  const cpus = lines.filter((line) => /^cpu\d/.test(line)).length;
  const own = process.cpuUsage();
  return {
    at: now() / 1000,
    cpus,
    idle: (fields[3] + fields[4]) * MS_PER_TICK,
    stolen: fields[7] * MS_PER_TICK,
    own: (own.user + own.system) / 1000,
  };
}

const figures = { jobs: 0, failures: 0, failure_examples: [], latencies_us: [] };

async function run(id, measured) {
  const start = now();
  try {
    const job = await queue.add('nothing', { name: id });
    const result = await job.waitUntilFinished(events, RESULT_MS_MAX);
    const took = now() - start;
    if (result !== id) throw new Error(`${id}: got ${JSON.stringify(result)}`);
    if (measured) {
      figures.jobs += 1;
      figures.latencies_us.push(took);
    }
  } catch (error) {
    figures.failures += 1;
    if (figures.failure_examples.length < EXAMPLES_MAX) figures.failure_examples.push(`${error}`);
  }
}

const clients = Array.from({ length: spec.clients }, (_, client) => client);
await Promise.all(
  clients.map(async (client) => {
    for (let n = 0; n < spec.warmup_per_client; n += 1) {
      await run(`${spec.nonce}-w${client}-${n}`, false);
    }
  }),
);

const before = reading();
const end = now() + spec.seconds * 1e6;
let next = 0;
await Promise.all(
  clients.map(async () => {
    for (let first = true; first || (next < spec.jobs && now() < end); first = false) {
      next += 1;
      await run(`${spec.nonce}-${next}`, true);
    }
  }),
);
const after = reading();
const [ms, idle, stolen, own] = ['at', 'idle', 'stolen', 'own'].map((k) => after[k] - before[k]);
console.log(
  JSON.stringify({
    ...figures,
    seconds: ms / 1000,
    reported_cpu_ms: [],
    modes: {},
    others_cpu_ms: Math.max(0, ms * before.cpus - idle - stolen - own),
    own_cpu_ms: own,
    stolen_cpu_ms: stolen,
  }),
);
await events.close();
await queue.close();
connection.disconnect();
