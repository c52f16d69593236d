//! The desired objects of an Application. Pure functions.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use setpoint::owner::controller_ref;
use setpoint::{Cached, Kind};

use crate::Application;

/// Returns the Deployment fields that the operator manages. Everything else is left to others.
pub(crate) fn deployment(application: &Cached<Application>) -> Value {
    let labels = labels(application);
    let spec = &application.spec;
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(application),
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": &labels},
            "template": {
                "metadata": {"labels": &labels},
                "spec": {"containers": [{
                    "name": "application",
                    "image": spec.image,
                    "ports": [{"containerPort": spec.port, "protocol": "TCP"}],
                }]},
            },
        },
    })
}

/// Returns the Service fields that the operator manages.
pub(crate) fn service(application: &Cached<Application>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(application),
        "spec": {
            "selector": labels(application),
            "ports": [{"port": application.spec.port, "protocol": "TCP"}],
        },
    })
}

/// Returns whether the Deployment already matches the Application.
pub(crate) fn is_deployed(application: &Application, deployment: &Deployment) -> bool {
    let Some(spec) = &deployment.spec else { return false };
    let container = spec.template.spec.as_ref().and_then(|pod| pod.containers.first());
    let runs = container.is_some_and(|container| {
        let ports = container.ports.iter().flatten().map(|port| port.container_port);
        container.image.as_ref() == Some(&application.spec.image) && ports.eq([application.spec.port])
    });
    runs && spec.replicas == Some(application.spec.replicas)
}

/// Returns whether the Service already matches the Application.
pub(crate) fn is_reachable(application: &Application, service: &Service) -> bool {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).map(|port| port.port);
    ports.eq([application.spec.port])
}

fn metadata(application: &Cached<Application>) -> Value {
    let owner = controller_ref(&Kind::of::<Application>(), application.meta());
    let key = application.key();
    json!({"name": key.name(), "namespace": key.namespace(), "ownerReferences": [owner]})
}

fn labels(application: &Cached<Application>) -> Value {
    json!({"app.kubernetes.io/name": application.key().name()})
}
