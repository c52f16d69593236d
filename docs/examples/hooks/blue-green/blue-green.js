// One colour serves, the other one is idle or on its way.
const readline = require("node:readline");

const OTHER = { blue: "green", green: "blue" };

function replicaSet(site, colour, image, replicas) {
  const labels = { site: site.metadata.name, colour, "controller-uid": site.metadata.uid };
  return {
    apiVersion: "apps/v1",
    kind: "ReplicaSet",
    metadata: { name: `${site.metadata.name}-${colour}`, labels },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [{ name: "site", image }] } },
    },
  };
}

function service(site, colour) {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: site.metadata.name },
    spec: {
      selector: { site: site.metadata.name, colour },
      ports: [{ port: 80 }],
    },
  };
}

function imageOf(set) {
  return set?.spec.template.spec.containers[0].image;
}

function sync({ parent: site, children }) {
  const sets = children["ReplicaSet.apps/v1"];
  const set = (colour) => sets[`${site.metadata.name}-${colour}`];
  const { image, replicas } = site.spec;
  let active = children["Service.v1"][site.metadata.name]?.spec.selector.colour ?? "blue";
  const next = OTHER[active];
  // What serves keeps its image until the other colour is ready with the new one.
  const current = imageOf(set(active)) ?? image;
  const isReady = (colour) => (set(colour)?.status?.readyReplicas ?? 0) >= replicas;
  if (current !== image && imageOf(set(next)) === image && isReady(next)) {
    active = next;
  }
  const idle = OTHER[active];
  const isMoving = (imageOf(set(active)) ?? image) !== image;
  const wanted = [
    service(site, active),
    replicaSet(site, active, imageOf(set(active)) ?? image, replicas),
    replicaSet(site, idle, image, isMoving ? replicas : 0),
  ];
  return { status: { active, ready: set(active)?.status?.readyReplicas ?? 0 }, children: wanted };
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, request } = JSON.parse(line);
  console.log(JSON.stringify({ id, response: sync(request) }));
});
