// The JavaScript client: create, read, watch, patch, apply, delete, and a custom resource.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NODE_MODULES}/`);
const k8s = require('@kubernetes/client-node');

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const namespace = 'default';

const created = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'settings' }, data: { color: 'blue' } } });
assert.ok(created.metadata.uid);
const replaced = await core.replaceNamespacedConfigMap({ namespace, name: 'settings', body: { ...created, data: { color: 'red' } } });
assert.equal(replaced.data.color, 'red');
await assert.rejects(
  core.replaceNamespacedConfigMap({ namespace, name: 'settings', body: { ...created, data: { color: 'old' } } }),
  (refused) => refused.code === 409,
);

const merge = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
const patched = await core.patchNamespacedConfigMap({ namespace, name: 'settings', body: { data: { size: 'small' } } }, merge);
assert.deepEqual(patched.data, { color: 'red', size: 'small' });

const apply = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.ServerSideApply);
const applied = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'applied' }, data: { key: '1' } };
await core.patchNamespacedConfigMap({ namespace, name: 'applied', fieldManager: 'one', body: applied }, apply);
await assert.rejects(
  core.patchNamespacedConfigMap({ namespace, name: 'applied', fieldManager: 'two', body: { ...applied, data: { key: '2' } } }, apply),
  (refused) => refused.code === 409,
);

const seen = [];
await new Promise((resolve, reject) => {
  const stop = new k8s.Watch(config).watch(
    `/api/v1/namespaces/${namespace}/configmaps`,
    { labelSelector: 'watched=yes', timeoutSeconds: 30 },
    (type, object) => {
      seen.push(`${type} ${object.metadata.name}`);
      if (seen.length === 2) stop.then((request) => request.abort()).then(resolve);
    },
    (error) => (seen.length === 2 ? resolve() : reject(error ?? new Error(`the watch ended: ${seen}`))),
  );
  stop
    .then(() => core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'watched', labels: { watched: 'yes' } } } }))
    .then(() => core.deleteNamespacedConfigMap({ namespace, name: 'watched' }))
    .catch(reject);
});
assert.deepEqual(seen, ['ADDED watched', 'DELETED watched']);

const where = { group: 'example.com', version: 'v1', plural: 'widgets', namespace };
const widget = { apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name: 'w' }, spec: { size: 1 } };
await custom.createNamespacedCustomObject({ ...where, body: widget });
const read = await custom.getNamespacedCustomObject({ ...where, name: 'w' });
assert.deepEqual(read.spec, { size: 1 });
const grown = await custom.patchNamespacedCustomObject({ ...where, name: 'w', body: { spec: { size: 2 } } }, merge);
assert.deepEqual(grown.spec, { size: 2 });
const taken = { ...where, name: 'w', fieldManager: 'three', force: true, body: { ...widget, spec: { size: 3 } } };
assert.deepEqual((await custom.patchNamespacedCustomObject(taken, apply)).spec, { size: 3 });
const { items } = await custom.listNamespacedCustomObject(where);
assert.deepEqual(items.map((item) => item.metadata.name), ['w']);
await custom.deleteNamespacedCustomObject({ ...where, name: 'w' });
console.log('done');
process.exit(0);
