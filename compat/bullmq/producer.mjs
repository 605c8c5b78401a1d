// Adds jobs to Cove's queue in every way BullMQ has, waits for their results, prints what came.
// Arguments: Redis port, queue name, count of jobs. The last line printed is one JSON object.
import { Queue, QueueEvents } from 'bullmq';
import Redis from 'ioredis';

const [port, name, count] = [Number(process.argv[2]), process.argv[3], Number(process.argv[4])];
const connection = new Redis({ host: '127.0.0.1', port, maxRetriesPerRequest: null });
const queue = new Queue(name, { connection });
const events = new QueueEvents(name, { connection });
await events.waitUntilReady();

const completed = new Map();
events.on('completed', ({ jobId, returnvalue }) => completed.set(jobId, returnvalue));

const request = (n) => ({ language: 'python', source: `print(${n})` });
const jobs = [];
const bulk = [];
for (let n = 0; n < count; n += 1) {
  if (n % 5 === 0) jobs.push(await queue.add('execute', request(n)));
  else if (n % 5 === 1) jobs.push(await queue.add('execute', request(n), { priority: 1 + (n % 7) }));
  else if (n % 5 === 2) jobs.push(await queue.add('execute', request(n), { delay: 20 + n }));
  else if (n % 5 === 3) jobs.push(await queue.add('execute', request(n), { lifo: true }));
  else bulk.push({ name: 'execute', data: request(n) });
}
jobs.push(...(await queue.addBulk(bulk)));
console.log('added');

const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(events, 60000)));
// Two readers of one stream: the listener may be a little behind the promises.
while (completed.size < jobs.length) await new Promise((resolve) => setImmediate(resolve));
const wrong = jobs.filter((job, n) => {
  const expected = job.data.source;
  return results[n]?.echo !== expected || completed.get(job.id)?.echo !== expected;
});
console.log(JSON.stringify({ added: jobs.length, completed: completed.size, wrong: wrong.length }));
await events.close();
await queue.close();
connection.disconnect();
