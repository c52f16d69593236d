"""A hook over HTTP. Metacontroller runs it as it is."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def service(name, labels, port):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": {"statefulset.kubernetes.io/pod-name": name}, "ports": [{"port": port}]},
    }


def sync(request):
    statefulset = request["object"]
    metadata, spec = statefulset["metadata"], statefulset["spec"]
    port = int(metadata["annotations"]["example.com/service-port"])
    names = [f"{metadata['name']}-{nth}" for nth in range(spec.get("replicas", 1))]
    return {"attachments": [service(name, {"app": metadata["name"]}, port) for name in names]}


def finalize(request):
    left = request["attachments"]["Service.v1"]
    return {"attachments": [], "finalized": not left}


class Hooks(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = json.dumps({"/sync": sync, "/finalize": finalize}[self.path](request)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hooks)
    print(server.server_address[1], flush=True)
    server.serve_forever()
