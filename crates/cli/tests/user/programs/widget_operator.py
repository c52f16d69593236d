"""An operator on kopf: every Widget gets a ConfigMap of its size, and a status that says so."""

import kopf
from kubernetes import client, config


@kopf.on.startup()
def start(settings, **_):
    config.load_kube_config()
    settings.posting.level = 30


@kopf.on.create("example.com", "v1", "widgets")
@kopf.on.update("example.com", "v1", "widgets", field="spec.size")
def size(spec, name, namespace, patch, **_):
    body = {"metadata": {"name": name}, "data": {"size": str(spec["size"])}}
    kopf.adopt(body)
    core = client.CoreV1Api()
    try:
        core.create_namespaced_config_map(namespace, body)
    except client.exceptions.ApiException as refused:
        if refused.status != 409:
            raise
        core.patch_namespaced_config_map(name, namespace, {"data": body["data"]})
    patch.status["written"] = spec["size"]


@kopf.on.delete("example.com", "v1", "widgets")
def farewell(name, namespace, **_):
    body = {"metadata": {"name": f"{name}-is-gone"}}
    client.CoreV1Api().create_namespaced_config_map(namespace, body)
