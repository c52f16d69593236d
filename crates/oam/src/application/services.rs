//! The health of services after the workflow has ended.

use serde_json::Value;

use crate::apply::keep::Live;
use crate::model::{Component, Service, Trait};
use crate::names;
use crate::render::context::Place;
use crate::session::Session;
use crate::workflow::component::LiveObjects;

impl Session<'_> {
    /// Reevaluates the health of every service from the recorded objects. Services without objects are dropped.
    pub(crate) fn refresh_services(&mut self, live: &[Live]) {
        let before = std::mem::take(&mut self.services);
        for service in &before {
            let is_only = before.iter().filter(|other| other.name == service.name).count() == 1;
            let own: Vec<&Live> = live.iter().filter(|live| is_part(live, service, is_only)).collect();
            if own.is_empty() {
                continue;
            }
            let judged = self.judge_service(service, &own);
            self.services.push(judged);
        }
    }

    fn judge_service(&mut self, service: &Service, own: &[&Live]) -> Service {
        // A service that cannot be read is not healthy. The rest of its status is kept.
        if let Some(why) = own.iter().find_map(|live| live.unreachable.clone()) {
            return Service { healthy: false, message: why, ..service.clone() };
        }
        let mut component = self.component_of_service(service);
        let mut objects = LiveObjects::default();
        for live in own {
            let object = live.object.clone().unwrap_or_default();
            let label = |name: &str| label(live, name).to_owned();
            if live.entry.trait_type.is_empty() {
                // A policy may have changed the type where the component was deployed.
                let kind = label(names::WORKLOAD_TYPE);
                if !kind.is_empty() && kind != names::without_revision(&component.kind) {
                    component.kind = kind;
                }
                objects.output = object;
            } else {
                objects.outputs.push((label(names::TRAIT_RESOURCE), live.entry.trait_type.clone(), object));
            }
        }
        let place = Place {
            component: &component.name,
            component_type: &component.kind,
            namespace: &service.namespace,
            cluster: &service.cluster,
            ..Place::default()
        };
        self.complete(&component);
        let context = self.context.of_component(&place);
        let judged = self.judge(&component, &context, &objects, None);
        Service { namespace: service.namespace.clone(), cluster: service.cluster.clone(), ..judged }
    }

    /// Returns the component of a service, with its deployed traits.
    fn component_of_service(&self, service: &Service) -> Component {
        let known = self.spec.components.iter().find(|component| component.name == service.name);
        let mut component = known
            .cloned()
            .unwrap_or_else(|| Component { name: service.name.clone(), ..Component::default() });
        let properties = |kind: &str| {
            let attached = component.traits.iter().find(|attached| attached.kind == kind);
            attached.map_or(Value::Null, |attached| attached.properties.clone())
        };
        let traits = service
            .traits
            .iter()
            .map(|health| Trait { kind: health.kind.clone(), properties: properties(&health.kind) });
        component.traits = traits.collect();
        component
    }
}

fn label<'a>(live: &'a Live, name: &str) -> &'a str {
    let recorded = live.entry.raw["metadata"]["labels"][name].as_str();
    let found = recorded.or_else(|| live.object.as_ref()?["metadata"]["labels"][name].as_str());
    found.unwrap_or_default()
}

/// Returns whether an object belongs to a service: to its component, and to its cluster and namespace if the component is
/// in several.
fn is_part(live: &Live, service: &Service, is_only: bool) -> bool {
    let recorded = live.entry.component.as_str();
    let component = if recorded.is_empty() { label(live, names::APP_COMPONENT) } else { recorded };
    let namespace = &live.entry.namespace;
    let cluster = if service.cluster == names::LOCAL_CLUSTER { "" } else { &service.cluster };
    let is_there =
        live.entry.cluster() == cluster && (namespace.is_empty() || *namespace == service.namespace);
    component == service.name && (is_only || is_there)
}
