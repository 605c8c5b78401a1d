import { Queue, QueueEvents } from 'bullmq';

const connection = { port: Number(process.env.REDIS_PORT ?? 6379) };
const queue = new Queue('cove', { connection });
const events = new QueueEvents('cove', { connection });
await events.waitUntilReady();

const job = await queue.add('execute', { language: 'python', source: 'print(6 * 7)' });
const execution = await job.waitUntilFinished(events);
console.log(execution.verdict, JSON.stringify(execution.stdout), execution.mode);

await events.close();
await queue.close();
