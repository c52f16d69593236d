const readline = require("node:readline");

function isReady(pod) {
  return pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True");
}

function sync({ parent, children }) {
  const { replicas, template } = parent.spec;
  const pod = (nth) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { ...template.metadata, name: `${parent.metadata.name}-${nth}` },
    spec: template.spec,
  });
  const pods = Object.values(children["Pod.v1"]);
  return {
    status: { replicas: pods.length, readyReplicas: pods.filter(isReady).length },
    children: Array.from({ length: replicas }, (_, nth) => pod(nth)),
  };
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, request } = JSON.parse(line);
  console.log(JSON.stringify({ id, response: sync(request) }));
});
