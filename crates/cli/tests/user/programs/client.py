"""The Python client: create, read, watch, patch, apply, delete, and a custom resource."""

import json

import websocket
from kubernetes import client, config, dynamic, watch

config.load_kube_config()
core, custom = client.CoreV1Api(), client.CustomObjectsApi()


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


# Create, read, replace, patch.
created = core.create_namespaced_config_map("default", config_map("settings", color="blue"))
assert created.metadata.uid and created.metadata.resource_version
created.data["size"] = "small"
replaced = core.replace_namespaced_config_map("settings", "default", created)
assert replaced.data == {"color": "blue", "size": "small"}
patched = core.patch_namespaced_config_map("settings", "default", {"data": {"color": None}})
assert patched.data == {"size": "small"}

# What was read before somebody else wrote is refused.
try:
    core.replace_namespaced_config_map("settings", "default", created)
    raise AssertionError("a stale write went through")
except client.exceptions.ApiException as refused:
    assert refused.status == 409 and refused.reason == "Conflict"

# Watch from where a list ended.
listed = core.list_namespaced_config_map("default", label_selector="watched=yes")
assert listed.items == []
seen = []
stream = watch.Watch().stream(
    core.list_namespaced_config_map,
    "default",
    label_selector="watched=yes",
    resource_version=listed.metadata.resource_version,
    timeout_seconds=30,
)
watched = config_map("watched")
watched.metadata.labels = {"watched": "yes"}
core.create_namespaced_config_map("default", watched)
core.delete_namespaced_config_map("watched", "default")
for event in stream:
    seen.append((event["type"], event["object"].metadata.name))
    if len(seen) == 2:
        break
assert seen == [("ADDED", "watched"), ("DELETED", "watched")], seen

# Server-side apply, with a conflict between two managers.
objects = dynamic.DynamicClient(client.ApiClient())
config_maps = objects.resources.get(api_version="v1", kind="ConfigMap")


def apply(manager, value, **more):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"key": value}}
    return config_maps.server_side_apply(body, namespace="default", field_manager=manager, **more)


assert apply("one", "1").data.key == "1"
try:
    apply("two", "2")
    raise AssertionError("a conflict went unnoticed")
except dynamic.exceptions.ConflictError as conflict:
    assert "FieldManagerConflict" in str(conflict.body), conflict.body
assert apply("two", "2", force_conflicts=True).data.key == "2"

# A custom resource.
where = {"group": "example.com", "version": "v1", "plural": "widgets"}
widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
custom.create_namespaced_custom_object(namespace="default", body=widget, **where)
custom.patch_namespaced_custom_object(namespace="default", name="w", body={"spec": {"size": 2}}, **where)
sizes = watch.Watch().stream(
    custom.list_namespaced_custom_object, namespace="default", timeout_seconds=30, **where
)
assert next(sizes)["object"]["spec"] == {"size": 2}
assert custom.get_namespaced_custom_object(namespace="default", name="w", **where)["spec"] == {"size": 2}
custom.delete_namespaced_custom_object(namespace="default", name="w", **where)

# A watch as browsers have it, over a WebSocket.
settings = client.Configuration.get_default_copy()
socket = websocket.create_connection(
    settings.host.replace("https", "wss") + "/api/v1/namespaces/default/configmaps?watch=1&labelSelector=framed",
    sslopt={"ca_certs": settings.ssl_ca_cert, "certfile": settings.cert_file, "keyfile": settings.key_file},
    timeout=30,
)
framed = config_map("framed")
framed.metadata.labels = {"framed": "yes"}
core.create_namespaced_config_map("default", framed)
event = json.loads(socket.recv())
assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "framed"), event
socket.ping("still there?")
core.delete_namespaced_config_map("framed", "default")
assert json.loads(socket.recv())["type"] == "DELETED"
socket.close()

core.delete_collection_namespaced_config_map("default", field_selector="metadata.name!=kube-root-ca.crt")
left = [item.metadata.name for item in core.list_namespaced_config_map("default").items]
assert left in ([], ["kube-root-ca.crt"]), left
print("done")
