//! In-place resize of containers: whether it is possible, and what it takes. Pure.
//!
//! A container's actual resources are those in its status. A node resizes at once if it can; otherwise a condition of
//! the pod reports that the resize is deferred or infeasible, and the container keeps its resources.

use serde::Deserialize;
use serde_json::{Value, json};
use setpoint::Object;

use crate::admission::{Host, Needs, rejection};

/// The condition of a pod with a pending resize.
pub(crate) const PENDING: &str = "PodResizePending";

/// Why a resize is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// `Deferred` until there is room, or `Infeasible` for good.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The outcome of a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    Refused(Refused),
    /// It is done. These containers have to be restarted for it.
    Made {
        restarts: Vec<Box<str>>,
    },
}

/// The requested and actual resources of a pod's containers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sizes {
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: Box<str>,
    resources: Value,
    resize_policy: Vec<Policy>,
    restart_policy: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Policy {
    resource_name: Box<str>,
    restart_policy: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    name: Box<str>,
    resources: Value,
}

impl Sizes {
    /// Reads the resources of a pod. `None` if it requests none; many do not.
    pub(crate) fn of(pod: &Object) -> Option<Self> {
        pod.contains_text("\"resources\":{\"").then(|| pod.decode().ok()).flatten()
    }

    /// Returns the resources shown in a container's status: the requested or the previous ones.
    pub(crate) fn shown(&self, name: &str, keeps: bool) -> Option<&Value> {
        let asks =
            || self.all().find(|container| *container.name == *name).map(|container| &container.resources);
        let has = || self.has(name).map(|status| &status.resources).filter(|resources| !resources.is_null());
        let shown = if keeps { has().or_else(asks) } else { asks() };
        shown.filter(|resources| resources.as_object().is_some_and(|some| !some.is_empty()))
    }

    fn all(&self) -> impl Iterator<Item = &Container> {
        self.spec.init_containers.iter().chain(&self.spec.containers)
    }

    fn has(&self, name: &str) -> Option<&ContainerStatus> {
        let mut statuses = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        statuses.find(|status| *status.name == *name)
    }

    /// Lists the containers whose actual resources differ from the requested ones.
    fn changed(&self) -> impl Iterator<Item = (&Container, &Value)> {
        let sidecars = self.spec.init_containers.iter().filter(|init| &*init.restart_policy == "Always");
        sidecars.chain(&self.spec.containers).filter_map(|container| {
            let status = self.has(&container.name)?;
            let differs = normal(&status.resources) != normal(&container.resources);
            (differs && !status.resources.is_null()).then_some((container, &status.resources))
        })
    }

    /// Whether any container's actual resources differ.
    pub(crate) fn differ(&self) -> bool {
        self.changed().next().is_some()
    }

    /// Returns the outcome of a pod's resize on its node. `None` if nothing differs.
    pub(crate) fn resize(&self, pod: &Needs, host: &Host<'_>) -> Option<Resize> {
        if !self.differ() {
            return None;
        }
        if let Some(refused) = refused(pod, host) {
            return Some(Resize::Refused(refused));
        }
        let restarts = self.changed().filter(|(container, has)| container.must_restart(has));
        Some(Resize::Made { restarts: restarts.map(|(container, _)| container.name.clone()).collect() })
    }

    /// Builds the message of a completed resize.
    pub(crate) fn message(&self) -> String {
        let list = |containers: &[Container]| {
            let one = |container: &Container| {
                let resources = match container.resources.is_null() {
                    true => json!({}),
                    false => container.resources.clone(),
                };
                format!("{{\"name\":{:?},\"resources\":{resources}}}", container.name)
            };
            containers.iter().map(one).collect::<Vec<_>>().join(",")
        };
        let init = match self.spec.init_containers.is_empty() {
            true => String::new(),
            false => format!("\"initContainers\":[{}],", list(&self.spec.init_containers)),
        };
        format!("Pod resize completed: {{{init}\"containers\":[{}]}}", list(&self.spec.containers))
    }
}

impl Container {
    /// Whether the change requires a restart.
    fn must_restart(&self, has: &Value) -> bool {
        let differs = |resource: &str| {
            ["requests", "limits"].iter().any(|kind| self.resources[kind][resource] != has[kind][resource])
        };
        let restarts = |policy: &&Policy| &*policy.restart_policy == "RestartContainer";
        self.resize_policy.iter().filter(restarts).any(|policy| differs(&policy.resource_name))
    }
}

/// Returns resources without empty fields.
fn normal(resources: &Value) -> Vec<(&str, &Value)> {
    let fields = resources.as_object().into_iter().flatten();
    let some = fields.filter(|(_, value)| value.as_object().is_none_or(|all| !all.is_empty()));
    some.map(|(name, value)| (name.as_str(), value)).collect()
}

fn refused(pod: &Needs, host: &Host<'_>) -> Option<Refused> {
    let (wants, has) = (pod.demand(), &host.allocatable);
    let lacks = |name: &str, wants: i64, has: i64| {
        let message =
            format!("Node didn't have enough capacity: {name}, requested: {wants}, capacity: {has}");
        (wants > has).then_some(Refused { reason: "Infeasible", message })
    };
    lacks("memory", wants.memory, has.memory).or_else(|| lacks("cpu", wants.cpu, has.cpu)).or_else(|| {
        rejection(pod, host).map(|rejection| Refused { reason: "Deferred", message: rejection.message })
    })
}

#[cfg(test)]
mod tests {
    use setpoint::Labels;
    use setpoint_placement::Amount;

    use super::*;

    fn pod(asks: &str, has: &str, policy: &str) -> Object {
        let policies = json!([{"resourceName": "cpu", "restartPolicy": policy}]);
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resizePolicy": policies, "resources": {"requests": {"cpu": asks}}}]},
            "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": has}}}]},
        });
        Object::from_json(pod.to_string().into()).expect("a pod")
    }

    #[test]
    fn a_resize_is_granted_if_it_fits_and_rejected_with_a_reason_otherwise() {
        let check = |asks: &str, policy: &str, expected: Option<Resize>| {
            let (labels, object) = (Labels::default(), pod(asks, "1", policy));
            let other = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}});
            let host = Host {
                name: "n",
                labels: &labels,
                taints: &[],
                allocatable: Amount { cpu: 4000, memory: 1, pods: 10, ..Amount::default() },
                others: vec![serde_json::from_value(other).expect("a pod")],
            };
            let sizes = Sizes::of(&object).expect("it asks for something");
            let found = sizes.resize(&object.decode::<Needs>().expect("a pod"), &host);
            assert_eq!(found, expected, "{asks}");
        };
        let made = |restarts: &[&str]| {
            Some(Resize::Made { restarts: restarts.iter().map(|name| (*name).into()).collect() })
        };
        let refused =
            |reason, message: &str| Some(Resize::Refused(Refused { reason, message: message.to_owned() }));
        check("1", "NotRequired", None);
        check("2", "NotRequired", made(&[]));
        check("2", "RestartContainer", made(&["c"]));
        let busy = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000";
        check("3", "NotRequired", refused("Deferred", busy));
        let small = "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000";
        check("5", "NotRequired", refused("Infeasible", small));
    }

    #[test]
    fn a_completed_resize_is_reported_with_all_sizes() {
        let sizes = Sizes::of(&pod("2", "1", "")).expect("it asks for something");
        let expected =
            r#"Pod resize completed: {"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}"#;
        assert_eq!(sizes.message(), expected);
    }
}
