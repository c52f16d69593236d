//! The desired objects of an Application. Pure functions.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use setpoint::prelude::*;

use crate::Application;

/// Returns the Deployment fields that the operator manages. Everything else is left to others.
pub(crate) fn deployment(application: &Cached<Application>) -> Deployment {
    let spec = &application.spec;
    let port = ContainerPort { container_port: spec.port, protocol: tcp(), ..ContainerPort::default() };
    let container = Container {
        name: "application".into(),
        image: Some(spec.image.clone()),
        ports: Some(vec![port]),
        ..Container::default()
    };
    let (labels, match_labels) = (Some(labels(application)), Some(labels(application)));
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels, ..ObjectMeta::default() }),
        spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
    };
    let spec = DeploymentSpec {
        replicas: Some(spec.replicas),
        selector: LabelSelector { match_labels, ..LabelSelector::default() },
        template,
        ..DeploymentSpec::default()
    };
    let metadata = application.owned(application.name());
    Deployment { metadata, spec: Some(spec), ..Deployment::default() }
}

/// Returns the Service fields that the operator manages.
pub(crate) fn service(application: &Cached<Application>) -> Service {
    let port = ServicePort { port: application.spec.port, protocol: tcp(), ..ServicePort::default() };
    let selector = Some(labels(application));
    let spec = ServiceSpec { selector, ports: Some(vec![port]), ..ServiceSpec::default() };
    Service { metadata: application.owned(application.name()), spec: Some(spec), ..Service::default() }
}

fn tcp() -> Option<String> {
    Some("TCP".into())
}

fn labels(application: &Cached<Application>) -> BTreeMap<String, String> {
    [("app.kubernetes.io/name".to_owned(), application.name().to_owned())].into()
}
