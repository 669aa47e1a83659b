// BullMQ: lists and sorted sets of Redis with locks, jobs in one event loop. The same work as that of the other peers.
import { createRequire } from 'node:module';

const { redis_url, provider_url, dynamodb_url, tasks, parallel, seconds } = JSON.parse(process.argv[2]);
const require = createRequire(`${process.cwd()}/`);
const { Queue, Worker } = require('bullmq');
const Redis = require('ioredis');
const { DynamoDBClient, UpdateItemCommand } = require('@aws-sdk/client-dynamodb');
const { Agent, request } = require('undici');

const redis = new Redis(redis_url, { maxRetriesPerRequest: null });
const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
const dynamodb = new DynamoDBClient({ region: 'us-east-1', endpoint: dynamodb_url, credentials });
const dispatcher = new Agent({ connections: parallel });

const write = (number, data) => new UpdateItemCommand({
  TableName: 'meanwhile',
  Key: { task_id: { S: `slow/task-${String(number).padStart(6, '0')}` } },
  UpdateExpression: 'SET #status = :status, #data = :data, #completed_at = :completed_at REMOVE #open, #error',
  ConditionExpression: '#generation = :generation AND #status = :pending',
  ExpressionAttributeNames: Object.fromEntries(
    ['status', 'data', 'completed_at', 'open', 'error', 'generation'].map((name) => [`#${name}`, name]),
  ),
  ExpressionAttributeValues: {
    ':status': { S: 'completed' },
    ':pending': { S: 'pending' },
    ':data': { S: data },
    ':completed_at': { N: String(Date.now()) },
    ':generation': { N: '1764533000001' },
  },
  ReturnValuesOnConditionCheckFailure: 'ALL_OLD',
});

const queue = new Queue('peers', { connection: redis });
const fetchTask = async (job) => {
  const reply = await request(`${provider_url}/?seconds=${job.data.seconds}`, { dispatcher });
  const said = await reply.body.json();
  if (said.status !== 'completed') throw new Error('not completed');
  await dynamodb.send(write(job.data.number, JSON.stringify(said.data)));
};

let wall; let cpu;
for (const [count, each] of [[2 * parallel, 0.1], [tasks, seconds]]) {
  const jobs = Array.from({ length: count }, (_, number) => (
    { name: 'fetch', data: { number, seconds: each }, opts: { removeOnComplete: true } }));
  await queue.addBulk(jobs);
  const worker = new Worker('peers', fetchTask, { connection: redis, concurrency: parallel, autorun: false });
  await worker.waitUntilReady();
  let left = count;
  const drained = new Promise((resolve) => worker.on('completed', () => { if (!(left -= 1)) resolve(); }));
  const [began, used] = [process.hrtime.bigint(), process.cpuUsage()];
  worker.run();
  await drained;
  wall = Number(process.hrtime.bigint() - began) / 1e9;
  const { user, system } = process.cpuUsage(used);
  cpu = (user + system) / 1e6;
  await worker.close();
}
const version = (name) => require(`${name}/package.json`).version;
const versions = { bullmq: version('bullmq'), '@aws-sdk/client-dynamodb': version('@aws-sdk/client-dynamodb'), node: process.versions.node };
console.log(JSON.stringify({ wall, cpu, versions }));
process.exit(0);
