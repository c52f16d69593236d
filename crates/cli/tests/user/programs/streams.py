"""The Python client on a pod of a simulated node: exec, log, port-forward, and a watch meanwhile; and a webhook of its own."""

import base64
import json
import socketserver
import threading

from kubernetes import client, config, watch
from kubernetes.stream import portforward, stream

import reviews

config.load_kube_config()
core = client.CoreV1Api()


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(4096):
            self.request.sendall(data)


server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
annotations = {
    "node.setpoint.dev/log": "one\n1s two\n2s three",
    "node.setpoint.dev/run-for": "8s",
    "node.setpoint.dev/backend": "127.0.0.1:%d" % server.server_address[1],
}
containers = [{"name": "c", "image": "example.com/app"}]
body = {"metadata": {"name": "app", "annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": containers}}
core.create_namespaced_pod("python", body)
for event in watch.Watch().stream(core.list_namespaced_pod, "python", field_selector="metadata.name=app", timeout_seconds=60):
    if event["object"].status.phase == "Running":
        break
else:
    raise AssertionError("the pod never ran")


def execute(command, **more):
    # A stream changes the client that it uses.
    own = client.CoreV1Api(client.ApiClient())
    return stream(own.connect_get_namespaced_pod_exec, "app", "python", command=command, stdout=True, stderr=True, **more)


assert execute(["echo", "hello"]) == "hello\n"
# All of the input is one message.
process = execute(["sh", "-c", "head -c 2097152 > /tmp/input; wc -c < /tmp/input"], stdin=True, _preload_content=False)
process.write_stdin("x" * (2 << 20))
process.run_forever(timeout=30)
assert process.read_stdout() == "2097152\n"

process = execute(["sh", "-c", "read name; echo hello $name; echo warm >&2; exit 6"], stdin=True, _preload_content=False)
process.write_stdin("world\n")
process.run_forever(timeout=30)
assert process.read_stdout() == "hello world\n"
assert process.read_stderr() == "warm\n"
assert process.returncode == 6, process.returncode

forwarder = portforward(client.CoreV1Api(client.ApiClient()).connect_get_namespaced_pod_portforward, "app", "python", ports="80")
connection = forwarder.socket(80)
connection.settimeout(30)
connection.sendall(b"ping")
assert connection.recv(4) == b"ping"
connection.close()
assert forwarder.error(80) is None, forwarder.error(80)

lines = list(watch.Watch().stream(core.read_namespaced_pod_log, "app", "python", follow=True))
assert lines == ["one", "two", "three"], lines


def review(request):
    """Denies what is red, and marks everything else."""
    if request["object"]["data"]["color"] == "red":
        return {"allowed": False, "status": {"code": 403, "message": "red is not allowed"}}
    patch = json.dumps([{"op": "add", "path": "/data/marked", "value": "yes"}])
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}


webhook = {
    "name": "marks.example.com",
    "clientConfig": reviews.serve(review),
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "python"}},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
registration = client.AdmissionregistrationV1Api()
registration.create_mutating_webhook_configuration({"metadata": {"name": "marks"}, "webhooks": [webhook]})
created = core.create_namespaced_config_map("python", {"metadata": {"name": "blue"}, "data": {"color": "blue"}})
assert created.data["marked"] == "yes", created.data
try:
    core.create_namespaced_config_map("python", {"metadata": {"name": "red"}, "data": {"color": "red"}})
    raise AssertionError("red was allowed")
except client.ApiException as refused:
    assert refused.status == 403 and "denied the request: red is not allowed" in refused.body, refused.body
registration.delete_mutating_webhook_configuration("marks")
print("done")
