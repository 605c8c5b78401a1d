// Looks at a queue as dashboards do, or changes it as their buttons do.
// Arguments: Redis port, queue name, command, argument. Prints one JSON object.
import { Queue } from 'bullmq';
import Redis from 'ioredis';

const [port, name, command, id] = [Number(process.argv[2]), ...process.argv.slice(3)];
const connection = new Redis({ host: '127.0.0.1', port, maxRetriesPerRequest: null });
const queue = new Queue(name, { connection });
const states = ['waiting', 'prioritized', 'active', 'delayed', 'completed', 'failed'];

const commands = {
  async look() {
    const jobs = {};
    for (const state of states) {
      jobs[state] = (await queue.getJobs([state])).map((job) => ({
        id: job.id,
        name: job.name,
        data: job.data,
        returnvalue: job.returnvalue,
        failedReason: job.failedReason,
      }));
    }
    return { counts: await queue.getJobCounts(...states), jobs, paused: await queue.isPaused() };
  },
  async retry() {
    const job = await queue.getJob(id);
    await job.retry('failed');
    return { state: await job.getState() };
  },
  async remove() {
    return { removed: await queue.remove(id) };
  },
  async pause() {
    await queue.pause();
    return {};
  },
  async resume() {
    await queue.resume();
    return {};
  },
};

console.log(JSON.stringify(await commands[command]()));
await queue.close();
connection.disconnect();
