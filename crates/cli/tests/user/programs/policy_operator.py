"""An operator on kopf with admission webhooks: it serves and configures them itself."""

import os

import kopf


@kopf.on.startup()
def start(settings, **_):
    settings.posting.enabled = False
    directory = os.environ["CERTIFICATES"]
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="localhost",
        certfile=f"{directory}/certificate.pem",
        pkeyfile=f"{directory}/key.pem",
        cafile=f"{directory}/certificate.pem",
    )
    settings.admission.managed = "policy.example.com"


@kopf.on.mutate("example.com", "v1", "widgets", operation="CREATE")
def label(spec, patch, **_):
    patch.metadata.labels["tier"] = "large" if spec["size"] > 5 else "small"


@kopf.on.validate("example.com", "v1", "widgets")
def check(spec, warnings, userinfo, dryrun, **_):
    warnings.append(f"checked for {userinfo['username']}, dry run: {dryrun}")
    if spec["size"] > 10:
        raise kopf.AdmissionError(f"{spec['size']} is too large", code=422)


@kopf.on.validate("example.com", "v1", "widgets", subresource="status")
def keep_status(new, **_):
    if new["status"].get("written", 0) < 0:
        raise kopf.AdmissionError("written is negative")


@kopf.on.create("example.com", "v1", "widgets")
def react(labels, patch, **_):
    patch.status["written"] = len(labels)
