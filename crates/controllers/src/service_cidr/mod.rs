//! ServiceCIDR: keeps a ServiceCIDR while Services use its addresses.
//!
//! Owns: the finalizer and the condition `Ready` of ServiceCIDRs.
//! Watches: ServiceCIDRs, IPAddresses.
//! Writes: ServiceCIDRs (patch), ServiceCIDR status (server-side apply).
//!
//! ```text
//!  plan.rs       what to do about a ServiceCIDR      (pure)
//!  reconcile.rs  observe, plan, write
//! ```
//!
//! Invariants: a ServiceCIDR is released only if every address in use is covered by another one, and not before ten
//! seconds have passed, so that API servers notice the deletion.

mod plan;
mod reconcile;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use setpoint::{Cached, Context, Event, Key, Lister, Object, Runnable};

use self::reconcile::RangeKeeper;
use crate::prefix::Prefix;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::encoding::null_is_empty;

pub(crate) const ENTRY: Entry = Entry {
    name: "service-cidr-controller",
    aliases: &[],
    on_by_default: true,
    gates: &[],
    summary: "keeps ServiceCIDRs whose addresses are in use",
    watches: &[
        Access::watch("networking.k8s.io", "servicecidrs"),
        Access::watch("networking.k8s.io", "ipaddresses"),
    ],
    writes: &[
        Access::to("networking.k8s.io", "servicecidrs", &["patch", "update"]),
        Access::to("networking.k8s.io", "servicecidrs/finalizers", &["patch", "update"]),
        Access::to("networking.k8s.io", "servicecidrs/status", &["patch", "update"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

/// How often a failing ServiceCIDR is retried before it waits for a change.
const MAX_RETRIES: u32 = 15;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceCidr {
    spec: Spec,
    status: Status,
}

setpoint::view!(ServiceCidr of k8s_openapi::api::networking::v1::ServiceCIDR);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "null_is_empty")]
    cidrs: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
}

/// An address in use. Its name is the address.
#[derive(Clone, Debug, Default, Deserialize)]
struct IpAddress {}

setpoint::view!(IpAddress of k8s_openapi::api::networking::v1::IPAddress);

impl ServiceCidr {
    fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.spec.cidrs.iter().filter_map(|text| Prefix::parse(text))
    }
}

/// CIDRs by ServiceCIDR.
type Ranges = BTreeMap<Key, Vec<Prefix>>;

fn ranges(listed: &[Cached<ServiceCidr>]) -> Ranges {
    listed.iter().map(|range| (range.key().clone(), range.prefixes().collect())).collect()
}

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let cidrs = context.informers.of::<ServiceCidr>();
    let addresses = context.informers.of::<IpAddress>();
    let queue = wiring::queue(context, "ipaddresses");

    let (changed, lister) = (queue.clone(), cidrs.lister::<ServiceCidr>());
    cidrs.add_handler(move |event: &Event| {
        changed.add(event.object().key().clone());
        // One that is added or deleted may release or hold others.
        if !matches!(event, Event::Updated { .. }) {
            overlapping(&lister, event.object()).into_iter().for_each(|key| changed.add(key));
        }
    });
    let (changed, lister) = (queue.clone(), cidrs.lister::<ServiceCidr>());
    addresses.add_handler(move |event: &Event| {
        if !matches!(event, Event::Updated { .. }) {
            containing(&lister, event.object()).into_iter().for_each(|key| changed.add(key));
        }
    });

    let keeper = RangeKeeper {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(ENTRY.name),
        cidrs: cidrs.lister(),
        addresses: addresses.lister(),
    };
    let controller =
        wiring::controller(&ENTRY, options, queue, keeper, [&cidrs, &addresses]).max_retries(MAX_RETRIES);
    vec![Box::new(controller)]
}

fn overlapping(cidrs: &Lister<ServiceCidr>, range: &Object) -> Vec<Key> {
    let Ok(view) = range.view::<ServiceCidr>() else { return Vec::new() };
    let others = ranges(&cidrs.list(None).unwrap_or_default());
    let touches =
        |prefixes: &[Prefix]| view.prefixes().any(|one| prefixes.iter().any(|other| one.overlaps(other)));
    others.into_iter().filter(|(_, prefixes)| touches(prefixes)).map(|(key, _)| key).collect()
}

fn containing(cidrs: &Lister<ServiceCidr>, address: &Object) -> Vec<Key> {
    let Some(address) = plan::address_of(address) else { return Vec::new() };
    let all = ranges(&cidrs.list(None).unwrap_or_default());
    let contains = |prefixes: &[Prefix]| prefixes.iter().any(|prefix| prefix.can_give(address));
    all.into_iter().filter(|(_, prefixes)| contains(prefixes)).map(|(key, _)| key).collect()
}
