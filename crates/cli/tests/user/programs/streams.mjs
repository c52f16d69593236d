// The JavaScript client on a pod of a simulated node: exec, log, attach, port-forward; and a webhook served by node.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import https from 'node:https';
import net from 'node:net';
import { createRequire } from 'node:module';
import { PassThrough, Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

const require = createRequire(`${process.env.NODE_MODULES}/`);
const k8s = require('@kubernetes/client-node');

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const registration = config.makeApiClient(k8s.AdmissionregistrationV1Api);
const namespace = 'default';

const listening = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

function collected(stream) {
  const pieces = [];
  stream.on('data', (piece) => pieces.push(piece));
  return () => Buffer.concat(pieces).toString();
}

async function eventually(claim, holds) {
  for (let look = 0; look < 300; look += 1) {
    if (await holds()) return;
    await sleep(100);
  }
  assert.fail(`it never came true that ${claim}`);
}

const echo = net.createServer((connection) => connection.pipe(connection));
const backend = `127.0.0.1:${await listening(echo)}`;
const log = 'one\n1s two\n2s three';
const annotations = { 'node.setpoint.dev/log': log, 'node.setpoint.dev/run-for': '8s', 'node.setpoint.dev/backend': backend };
const spec = { restartPolicy: 'Never', containers: [{ name: 'c', image: 'example.com/app' }] };
await core.createNamespacedPod({ namespace, body: { metadata: { name: 'app', annotations }, spec } });
const shell = { restartPolicy: 'Never', containers: [{ name: 'c', image: 'busybox', command: ['sh'], stdin: true, stdinOnce: true }] };
await core.createNamespacedPod({ namespace, body: { metadata: { name: 'shell' }, spec: shell } });
const phase = async (name) => (await core.readNamespacedPod({ namespace, name })).status.phase;
await eventually('the pods run', async () => (await phase('app')) === 'Running' && (await phase('shell')) === 'Running');

async function execute() {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const [out, err] = [collected(stdout), collected(stderr)];
  const command = ['sh', '-c', 'read name; echo hello $name; echo warm >&2; exit 6'];
  const status = await new Promise((resolve, reject) => {
    new k8s.Exec(config).exec(namespace, 'app', 'c', command, stdout, stderr, Readable.from(['world\n']), false, resolve).catch(reject);
  });
  assert.deepEqual([out(), err()], ['hello world\n', 'warm\n']);
  assert.equal(status.status, 'Failure');
  assert.deepEqual(status.details.causes, [{ reason: 'ExitCode', message: '6' }]);
}

async function follow() {
  const stream = new PassThrough();
  const text = collected(stream);
  await new k8s.Log(config).log(namespace, 'app', 'c', stream, { follow: true });
  await new Promise((resolve) => stream.on('end', resolve));
  assert.equal(text(), 'one\ntwo\nthree\n');
}

async function attach() {
  const [stdout, stdin] = [new PassThrough(), new PassThrough()];
  const out = collected(stdout);
  const socket = await new k8s.Attach(config).attach(namespace, 'shell', 'c', stdout, null, stdin, false);
  stdin.write('echo hello from $HOSTNAME\n');
  await eventually('the shell answers', () => out() === 'hello from shell\n');
  stdin.end('exit 0\n');
  await eventually('the shell has ended', async () => (await phase('shell')) === 'Succeeded');
  socket.close();
}

async function forward() {
  const [output, input] = [new PassThrough(), new PassThrough()];
  const echoed = collected(output);
  const socket = await new k8s.PortForward(config).portForward(namespace, 'app', [80], output, null, input);
  input.write('ping');
  await eventually('the process answers', () => echoed() === 'ping');
  socket.close();
}

async function serveWebhook() {
  const [key, cert] = ['key', 'certificate'].map((name) => fs.readFileSync(`${process.env.CERTIFICATES}/${name}.pem`));
  const server = https.createServer({ key, cert }, async (request, response) => {
    const review = JSON.parse(Buffer.concat(await request.toArray()).toString());
    const allowed = review.request.object.data?.color !== 'red';
    const patch = Buffer.from(JSON.stringify([{ op: 'add', path: '/data/seen', value: 'yes' }])).toString('base64');
    const verdict = allowed ? { patchType: 'JSONPatch', patch } : { status: { message: 'red is not allowed', code: 403 } };
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify({ apiVersion: review.apiVersion, kind: review.kind, response: { uid: review.request.uid, allowed, ...verdict } }));
  });
  const rules = [{ apiGroups: [''], apiVersions: ['v1'], resources: ['configmaps'], operations: ['CREATE'] }];
  const clientConfig = { url: `https://localhost:${await listening(server)}/`, caBundle: cert.toString('base64') };
  const webhook = { name: 'colors.example.com', clientConfig, rules, sideEffects: 'None', admissionReviewVersions: ['v1'], timeoutSeconds: 5 };
  await registration.createMutatingWebhookConfiguration({ body: { metadata: { name: 'colors' }, webhooks: [webhook] } });
  const created = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'blue' }, data: { color: 'blue' } } });
  assert.equal(created.data.seen, 'yes');
  await assert.rejects(
    core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'red' }, data: { color: 'red' } } }),
    (refused) => refused.code === 403 && refused.body.includes('denied the request: red is not allowed'),
  );
  await registration.deleteMutatingWebhookConfiguration({ name: 'colors' });
}

await Promise.all([execute(), follow(), attach(), forward(), serveWebhook()]);
console.log('done');
process.exit(0);
