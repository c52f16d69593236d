"""The Python client on a custom resource that a webhook in Python converts: v1 has a size, v2 has a width and a height."""

import time

from kubernetes import client, config, watch

import reviews

config.load_kube_config()
conversions = []


def convert(request):
    wanted = request["desiredAPIVersion"]
    conversions.append(len(request["objects"]))
    for box in request["objects"]:
        spec = box["spec"]
        if wanted.endswith("/v2"):
            width, height = spec.pop("size").split("x")
            spec.update(width=int(width), height=int(height))
        else:
            spec["size"] = f"{spec.pop('width')}x{spec.pop('height')}"
        box["apiVersion"] = wanted
    return {"convertedObjects": request["objects"], "result": {"status": "Success"}}


def version(name, properties):
    spec = {"type": "object", "properties": properties, "required": list(properties)}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {"name": name, "served": True, "storage": name == "v1", "schema": schema}


number = {"type": "integer"}
definition = {
    "metadata": {"name": "boxes.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "boxes", "kind": "Box"},
        "scope": "Namespaced",
        "versions": [version("v1", {"size": {"type": "string"}}), version("v2", {"width": number, "height": number})],
        "conversion": {
            "strategy": "Webhook",
            "webhook": {"clientConfig": reviews.serve(convert), "conversionReviewVersions": ["v1"]},
        },
    },
}
client.ApiextensionsV1Api().create_custom_resource_definition(definition)
objects = client.CustomObjectsApi()
old, new = (("example.com", version, "default", "boxes") for version in ("v1", "v2"))


def box(version, name, spec):
    return {"apiVersion": f"example.com/{version}", "kind": "Box", "metadata": {"name": name}, "spec": spec}


objects.create_namespaced_custom_object(*old, box("v1", "a", {"size": "3x4"}))
assert objects.get_namespaced_custom_object(*new, "a")["spec"] == {"width": 3, "height": 4}
created = objects.create_namespaced_custom_object(*new, box("v2", "b", {"width": 5, "height": 6}))
assert objects.get_namespaced_custom_object(*old, "b")["spec"] == {"size": "5x6"}
patched = objects.patch_namespaced_custom_object(*new, "a", {"spec": {"height": 7}})
assert patched["spec"] == {"width": 3, "height": 7}, patched
listed = objects.list_namespaced_custom_object(*new)
assert [item["spec"]["width"] for item in listed["items"]] == [3, 5], listed
assert {item["apiVersion"] for item in listed["items"]} == {"example.com/v2"}
start = created["metadata"]["resourceVersion"]
for event in watch.Watch().stream(objects.list_namespaced_custom_object, *new, resource_version=start, timeout_seconds=30):
    assert event["type"] == "MODIFIED" and event["raw_object"]["spec"]["height"] == 7, event
    break
else:
    raise AssertionError("the patch was not seen")

for number in range(200):
    objects.create_namespaced_custom_object(*old, box("v1", f"many-{number}", {"size": f"{number}x1"}))
assert len(objects.list_namespaced_custom_object(*new)["items"]) == 202
# What was written is also converted in the background.
before = -1
while before != len(conversions):
    before = len(conversions)
    time.sleep(1)
assert len(objects.list_namespaced_custom_object(*new)["items"]) == 202
assert len(conversions) == before, "conversions are cached"
print("done")
