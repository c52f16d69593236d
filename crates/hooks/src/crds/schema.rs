//! The OpenAPI schemas of the kinds.

use serde_json::{Map, Value, json};

pub(super) fn composite() -> Value {
    let child = resource(json!({"updateStrategy": object(json!({
        "method": method(),
        "statusChecks": object(json!({"conditions": list(required(&["type"], json!({
            "type": text(), "status": text(), "reason": text(),
        })))})),
    }))}));
    let parent = resource(json!({
        "revisionHistory": object(json!({"fieldPaths": list(text())})),
        "labelSelector": label_selector(),
        "ignoreStatusChanges": boolean(),
    }));
    let hooks = ["customize", "sync", "finalize", "preUpdateChild", "postUpdateChild"];
    let spec = required(
        &["parentResource"],
        json!({
            "parentResource": parent,
            "childResources": list(child),
            "hooks": hooks_of(&hooks),
            "endpointConfigs": endpoints(),
            "resyncPeriodSeconds": number(),
            "generateSelector": boolean(),
        }),
    );
    kind(&["metadata", "spec"], json!({"spec": spec, "status": status()}))
}

pub(super) fn decorator() -> Value {
    let annotations = object(json!({
        "matchAnnotations": map_of(text()),
        "matchExpressions": list(requirement()),
    }));
    let decorated = resource(json!({
        "labelSelector": label_selector(),
        "annotationSelector": annotations,
        "ignoreStatusChanges": boolean(),
    }));
    let attachment = resource(json!({"updateStrategy": object(json!({"method": method()}))}));
    let spec = required(
        &["resources"],
        json!({
            "resources": list(decorated),
            "attachments": list(attachment),
            "hooks": hooks_of(&["customize", "sync", "finalize"]),
            "endpointConfigs": endpoints(),
            "resyncPeriodSeconds": number(),
        }),
    );
    kind(&["metadata", "spec"], json!({"spec": spec, "status": status()}))
}

pub(super) fn revision() -> Value {
    let children = required(
        &["apiGroup", "kind", "names"],
        json!({
            "apiGroup": text(), "kind": text(), "names": list(text()),
        }),
    );
    let patch = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    kind(&["metadata", "parentPatch"], json!({"parentPatch": patch, "children": list(children)}))
}

/// The status of CompositeControllers and DecoratorControllers.
fn status() -> Value {
    let condition = required(
        &["type", "status"],
        json!({
            "type": text(), "status": text(), "reason": text(), "message": text(),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        }),
    );
    object(json!({
        "observedGeneration": {"type": "integer", "format": "int64"},
        "conditions": list(condition),
    }))
}

fn kind(needed: &[&str], properties: Value) -> Value {
    let base = json!({"apiVersion": text(), "kind": text(), "metadata": {"type": "object"}});
    required(needed, merged(base, properties))
}

fn resource(more: Value) -> Value {
    required(&["apiVersion", "resource"], merged(json!({"apiVersion": text(), "resource": text()}), more))
}

fn hooks_of(names: &[&str]) -> Value {
    let hook = object(json!({
        "version": {"type": "string", "enum": ["v1", "v2"], "default": "v1"},
        "webhook": webhook(),
    }));
    let hooks: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), hook.clone())).collect();
    object(hooks.into())
}

fn webhook() -> Value {
    object(merged(
        connection(),
        json!({
            "url": text(),
            "timeout": {"type": "string", "format": "duration"},
            "etag": object(json!({
                "enabled": boolean(), "cacheTimeoutSeconds": number(), "cacheCleanupSeconds": number(),
            })),
            "path": text(),
            "service": required(&["name", "namespace"], json!({
                "name": text(), "namespace": text(), "port": number(), "protocol": text(),
            })),
            "responseUnMarshallMode": {"type": "string", "enum": ["loose", "strict"]},
        }),
    ))
}

fn endpoints() -> Value {
    list(required(&["host"], merged(connection(), json!({"host": text()}))))
}

/// TLS and credentials of a hook: on the hook itself or for its host.
fn connection() -> Value {
    let secret = || required(&["name", "namespace"], json!({"name": text(), "namespace": text()}));
    let key =
        required(&["key", "name", "namespace"], json!({"key": text(), "name": text(), "namespace": text()}));
    let authority = || {
        required(
            &["name", "namespace"],
            json!({
                "key": or_else("ca.crt"), "name": text(), "namespace": text(),
            }),
        )
    };
    json!({
        "caBundle": object(json!({"inline": text(), "secretRef": authority(), "configMapRef": authority()})),
        "clientTLS": required(&["secretRef"], json!({
            "secretRef": secret(), "certKey": or_else("tls.crt"), "privateKeyKey": or_else("tls.key"),
        })),
        "authorization": required(&["secretRef"], json!({"type": or_else("Bearer"), "secretRef": key})),
        "basicAuth": required(&["secretRef"], json!({
            "secretRef": secret(), "usernameKey": or_else("username"), "passwordKey": or_else("password"),
        })),
    })
}

fn method() -> Value {
    let methods = ["OnDelete", "Recreate", "InPlace", "RollingRecreate", "RollingInPlace"];
    json!({"type": "string", "enum": methods})
}

fn label_selector() -> Value {
    let mut expressions = list(requirement());
    expressions["x-kubernetes-list-type"] = "atomic".into();
    let mut selector = object(json!({"matchLabels": map_of(text()), "matchExpressions": expressions}));
    selector["x-kubernetes-map-type"] = "atomic".into();
    selector
}

fn requirement() -> Value {
    let mut values = list(text());
    values["x-kubernetes-list-type"] = "atomic".into();
    required(&["key", "operator"], json!({"key": text(), "operator": text(), "values": values}))
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn required(names: &[&str], properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": names})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn map_of(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn or_else(default: &str) -> Value {
    json!({"type": "string", "default": default})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn number() -> Value {
    json!({"type": "integer", "format": "int32"})
}

fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut one, other) {
        fields.extend(more);
    }
    one
}
