// BullMQ's drain of jobs that do nothing, 50 at once: `node bullmq.mjs PORT JOBS`, where `npm install bullmq ioredis` was
// run. Prints the seconds by the wall, of the server and of this process. Exit code 3: they are not there.
import { createRequire } from 'node:module';

let bullmq;
let redis;
const [port, jobs] = process.argv.slice(2).map(Number);
try {
  const require = createRequire(`${process.cwd()}/`);
  const Redis = require('ioredis');
  bullmq = require('bullmq');
  redis = new Redis(port, '127.0.0.1', { maxRetriesPerRequest: null });
} catch {
  process.exit(3);
}

const serverSeconds = async () => {
  const info = await redis.info('cpu');
  const said = (field) => Number((info.match(`${field}_main_thread:(.*)`) ?? info.match(`${field}:(.*)`))[1]);
  return said('used_cpu_user') + said('used_cpu_sys');
};

const queue = new bullmq.Queue('drain', { connection: redis });
for (let first = 0; first < jobs; first += 500) {
  const numbers = Array.from({ length: Math.min(500, jobs - first) }, (_, n) => first + n);
  const opts = { removeOnComplete: true };
  await queue.addBulk(numbers.map((id) => ({ name: 'task', data: { id }, opts: { ...opts, jobId: `task-${id}` } })));
}
const options = { connection: redis, concurrency: 50, autorun: false };
const worker = new bullmq.Worker('drain', async () => {}, options);
await worker.waitUntilReady();
let left = jobs;
const drained = new Promise((resolve) => worker.on('completed', () => { if (!(left -= 1)) resolve(); }));
const [server, began, used] = [await serverSeconds(), process.hrtime.bigint(), process.cpuUsage()];
worker.run();
await drained;
const wall = Number(process.hrtime.bigint() - began) / 1e9;
const { user, system } = process.cpuUsage(used);
console.log(JSON.stringify({ wall, server: (await serverSeconds()) - server, client: (user + system) / 1e6 }));
await worker.close();
await queue.obliterate({ force: true });
await queue.close();
redis.disconnect();
