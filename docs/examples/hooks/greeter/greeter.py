"""A hook as a child process: a request per line on stdin, an answer per line on stdout."""

import json
import sys


def sync(request):
    parent = request["parent"]
    name, who = parent["metadata"]["name"], parent["spec"]["who"]
    text = f"Hello, {who}!"
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"text": text},
    }
    return {"status": {"text": text}, "children": [config_map]}


for line in sys.stdin:
    call = json.loads(line)
    print(json.dumps({"id": call["id"], "response": sync(call["request"])}), flush=True)
