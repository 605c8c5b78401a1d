// A worker whose jobs do nothing. Arguments: Redis port, queue name, jobs at a time.
import { Worker } from 'bullmq';
import Redis from 'ioredis';

const [port, name, concurrency] = process.argv.slice(2);
const connection = new Redis({ host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null });
// The name comes back, so that the producer sees whose result it got.
const worker = new Worker(name, async (job) => job.data.name, {
  connection,
  concurrency: Number(concurrency),
});
await worker.waitUntilReady();
console.log('ready');
process.on('SIGTERM', async () => {
  await worker.close();
  connection.disconnect();
});
