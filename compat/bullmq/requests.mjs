// Adds executions to a running server's queue as a program that uses BullMQ would, some of them
// wrong, and prints what became of each. Argument: Redis port. Prints one JSON object.
import { Queue, QueueEvents } from 'bullmq';
import Redis from 'ioredis';

const connection = new Redis({ host: '127.0.0.1', port: Number(process.argv[2]), maxRetriesPerRequest: null });
const queue = new Queue('cove', { connection });
const events = new QueueEvents('cove', { connection });
await events.waitUntilReady();

const requests = {
  python: [{ language: 'python', source: 'print(6 * 7)' }, {}],
  argv: [{ argv: ['/bin/sh', '-c', 'echo out; exit 3'] }, { priority: 3 }],
  late: [{ argv: ['echo', 'late'] }, { delay: 100 }],
  cobol: [{ language: 'cobol', source: '' }, {}],
  unknown: [{ argv: ['true'], colour: 'red' }, {}],
  list: [[1, 2], {}],
  limit: [{ argv: ['true'], limits: { cpu_ms: 0 } }, {}],
};
const answers = {};
await Promise.all(Object.entries(requests).map(async ([name, [data, options]]) => {
  const job = await queue.add('execute', data, options);
  try {
    answers[name] = { result: await job.waitUntilFinished(events, 60000) };
  } catch (error) {
    answers[name] = { failed: error.message };
  }
}));
console.log(JSON.stringify(answers));
await events.close();
await queue.close();
connection.disconnect();
