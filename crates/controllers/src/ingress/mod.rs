//! Ingress: publishes an address in the status of Ingresses of its class.
//!
//! For local use: kube-controller-manager has no such controller. It runs if there is an address to publish.
//!
//! Owns: `status.loadBalancer` of Ingresses whose class has the controller [`CONTROLLER`].
//! Watches: Ingresses, IngressClasses.
//! Writes: Ingress status (patch).
//!
//! Invariants:
//! - Ingresses of other controllers' classes are left alone;
//! - an Ingress without a class belongs to the default class, the newest if there are several;
//! - the address is removed from an Ingress that no longer belongs to this controller.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::json;
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::handler::enqueue_self;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable,
};

use crate::registry::{Access, Entry, Options};
use crate::wiring;
use crate::workload::encoding::null_is_empty;

pub(crate) const ENTRY: Entry = Entry {
    name: "ingress-controller",
    aliases: &[],
    on_by_default: true,
    gates: &[],
    summary: "publishes an address in the status of Ingresses of its class",
    watches: &[
        Access::watch("networking.k8s.io", "ingresses"),
        Access::watch("networking.k8s.io", "ingressclasses"),
    ],
    writes: &[Access::to("networking.k8s.io", "ingresses/status", &["patch"])],
    default_workers: 5,
    build,
};

/// The `spec.controller` of this controller's classes.
pub const CONTROLLER: &str = "setpoint.dev/ingress";
/// The deprecated class annotation.
const OLD_CLASS: &str = "kubernetes.io/ingress.class";
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Ingress {
    metadata: Annotated,
    spec: IngressSpec,
    status: Status,
}

setpoint::view!(Ingress of k8s_openapi::api::networking::v1::Ingress);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Annotated {
    #[serde(deserialize_with = "null_is_empty")]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct IngressSpec {
    ingress_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "null_is_empty")]
    load_balancer: LoadBalancer,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    #[serde(deserialize_with = "null_is_empty")]
    ingress: Vec<Point>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Point {
    ip: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Class {
    metadata: Annotated,
    spec: ClassSpec,
}

setpoint::view!(Class of k8s_openapi::api::networking::v1::IngressClass);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClassSpec {
    controller: String,
}

/// Without an address there is nothing to publish.
fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let Some(address) = options.load_balancer_pool.as_ref().and_then(crate::AddressPool::first) else {
        return Vec::new();
    };
    let ingresses = context.informers.of::<Ingress>();
    let classes = context.informers.of::<Class>();
    let queue = wiring::queue(context, "ingress");
    ingresses.add_handler(enqueue_self(&queue));
    let (changed, all) = (queue.clone(), ingresses.lister::<Ingress>());
    // A class does not know its Ingresses, so enqueue all.
    classes.add_handler(move |_: &Event| {
        all.objects().list(None).iter().for_each(|ingress| changed.add(ingress.key().clone()));
    });
    let pointer = Pointer {
        client: context.client.clone(),
        ingresses: ingresses.lister(),
        classes: classes.lister(),
        address,
    };
    let controller = wiring::controller(&ENTRY, options, queue, pointer, [&ingresses, &classes]);
    vec![Box::new(controller)]
}

struct Pointer {
    client: Client,
    ingresses: Lister<Ingress>,
    classes: Lister<Class>,
    address: IpAddr,
}

impl Reconciler for Pointer {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(ingress) = self.ingresses.get(key)?.filter(|ingress| !ingress.meta().is_being_deleted())
        else {
            return Ok(Outcome::Settled);
        };
        let own = Point { ip: self.address.to_string() };
        let (says, is_own) = (&ingress.status.load_balancer.ingress, self.is_own(&ingress)?);
        let wanted = match is_own {
            true if *says != [own.clone()] => json!([{"ip": own.ip}]),
            // Only remove this controller's address: another one may have published its own.
            false if says.contains(&own) => serde_json::Value::Null,
            _ => return Ok(Outcome::Settled),
        };
        let body = json!({
            "metadata": {"uid": ingress.meta().uid, "resourceVersion": ingress.meta().resource_version},
            "status": {"loadBalancer": {"ingress": wanted}},
        });
        let patch = Patch::merge(&body);
        let patched = self.client.patch(&Kind::of::<Ingress>(), key, Subresource::Status, patch).await;
        patched.optional().attempting(format!("update the load balancer status of ingress {key}"))?;
        Ok(Outcome::Settled)
    }
}

impl Pointer {
    /// Whether an Ingress belongs to a class of this controller.
    fn is_own(&self, ingress: &Ingress) -> Result<bool, ReconcileError> {
        let named = ingress.spec.ingress_class_name.as_deref();
        let class = match named.or_else(|| ingress.metadata.annotations.get(OLD_CLASS).map(String::as_str)) {
            Some(name) => self.classes.get(&Key::cluster(name))?,
            None => default_class(self.classes.list(None)?),
        };
        Ok(class.is_some_and(|class| class.spec.controller == CONTROLLER))
    }
}

/// Returns the newest default class, the first by name on a tie.
fn default_class(mut classes: Vec<Cached<Class>>) -> Option<Cached<Class>> {
    classes.retain(|class| class.metadata.annotations.get(IS_DEFAULT).is_some_and(|is| is == "true"));
    classes.sort_by_key(|class| std::cmp::Reverse(class.meta().creation_timestamp));
    classes.into_iter().next()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::workload::fixtures::{at, cached};

    fn class(name: &str, is_default: &str, created: i64) -> Cached<Class> {
        let metadata: Value =
            json!({"name": name, "annotations": {IS_DEFAULT: is_default}, "creationTimestamp": at(created)});
        cached(json!({"metadata": metadata, "spec": {"controller": CONTROLLER}}))
    }

    #[test]
    fn the_newest_default_class_is_the_default() {
        let check = |classes: Vec<Cached<Class>>, expected: Option<&str>| {
            let found = default_class(classes);
            assert_eq!(found.as_ref().map(|class| class.key().name()), expected);
        };
        check(vec![], None);
        check(vec![class("a", "false", 9)], None);
        check(vec![class("a", "true", 1), class("b", "true", 2), class("c", "false", 3)], Some("b"));
        check(vec![class("a", "true", 1), class("b", "true", 1)], Some("a"));
    }
}
