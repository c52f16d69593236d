//! Device requirements of a pod's claims. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint::{Cached, Key};
use setpoint_device::{RuleLister, Rules};

use super::allocation::Decided;
use super::caches::DeviceCaches;
use super::claims::claims_of;
use super::in_use::InUse;
use super::pools::{offers, pools};
use super::requests::{ClaimRequests, Failure};
use super::search::{SearchResult, search};
use super::view::{Claim, DeviceId, Slice};
use crate::filter::{Check, Obstacle};
use crate::ledger::NodeInfo;
use crate::view::Pod;

#[derive(Clone)]
pub(crate) struct DeviceNeeds<'a> {
    caches: &'a DeviceCaches,
    /// In spec order.
    pub(super) claims: Vec<Cached<Claim>>,
    slices: Vec<Cached<Slice>>,
    /// Device taint rules, if device taints are enabled.
    tainting: Option<Rules>,
    taken: Arc<BTreeMap<DeviceId, usize>>,
}

/// The result of allocating the unallocated claims on a node.
enum Served {
    By(Vec<Decided>),
    NotAll,
    /// The search exceeded its step limit.
    TooHard,
}

/// The v1.34 message for a pod that fits nowhere.
type Refusal = String;

impl<'a> DeviceNeeds<'a> {
    /// Computes what a pod's claims need. `None` if it has none, an error if no node can satisfy them now.
    pub(crate) fn of(pod: &Pod, in_use: &InUse, caches: &'a DeviceCaches) -> Result<Option<Self>, Refusal> {
        if pod.spec.resource_claims.is_empty() {
            return Ok(None);
        }
        let claims = claims_of(pod, &caches.claims)?;
        if claims.is_empty() {
            return Ok(None);
        }
        for claim in claims.iter().filter(|claim| !claim.is_allocated()) {
            if in_use.is_decided(&claim.meta().uid) {
                let claim = claim.key();
                return Err(format!("resource claim {claim} is in the process of being allocated"));
            }
            check_classes(claim, caches)?;
        }
        let has_to_allocate = claims.iter().any(|claim| !claim.is_allocated());
        let slices = if has_to_allocate { caches.slices.list(None) } else { Ok(Vec::new()) };
        let slices = slices.map_err(|error| error.to_string())?;
        let rules = caches.rules.as_ref().filter(|_| has_to_allocate).map(RuleLister::read);
        let tainting = rules.transpose().map_err(|error| error.to_string())?;
        Ok(Some(Self { caches, claims, slices, tainting, taken: in_use.taken() }))
    }

    /// Returns why a node cannot satisfy the pod's claims, or `None` if it can.
    pub(crate) fn obstacle(&self, node: &NodeInfo) -> Option<Obstacle> {
        let because = |reason: &'static str| Some(Obstacle::firm(Check::Devices, reason));
        match self.served_on(node) {
            Err(why) => {
                let why = format!("running \"DynamicResources\" filter plugin: {why}");
                Some(Obstacle::fatal(Check::Devices, why))
            }
            Ok(Served::NotAll) => because("cannot allocate all claims"),
            Ok(Served::TooHard) => because("timed out trying to allocate devices"),
            Ok(Served::By(_)) if !self.is_available_on(node) => {
                because("resourceclaim not available on the node")
            }
            Ok(Served::By(_)) => None,
        }
    }

    /// Whether all allocated claims can be used from a node.
    fn is_available_on(&self, node: &NodeInfo) -> bool {
        self.claims.iter().all(|claim| is_available(claim, node))
    }

    /// Returns the allocated claims that keep the pod off some of these nodes and that no other pod uses. They could be
    /// deallocated and allocated elsewhere.
    pub(crate) fn deallocatable<'n>(
        &self,
        pod: &Pod,
        nodes: impl Iterator<Item = &'n NodeInfo> + Clone,
    ) -> Vec<Cached<Claim>> {
        let only_ours = |claim: &Claim| match &claim.status.reserved_for[..] {
            [] => true,
            [only] => *only.uid == *pod.meta().uid,
            _ => false,
        };
        let idle =
            |claim: &&Cached<Claim>| only_ours(claim) && nodes.clone().any(|node| !is_available(claim, node));
        self.claims.iter().filter(idle).cloned().collect()
    }

    /// Returns allocations for the unallocated claims, on a node that can satisfy them.
    pub(super) fn allocations_on(&self, node: &NodeInfo) -> Vec<(Cached<Claim>, Decided)> {
        let unallocated = self.claims.iter().filter(|claim| !claim.is_allocated()).cloned();
        match self.served_on(node) {
            Ok(Served::By(decided)) => unallocated.zip(decided).collect(),
            _ => Vec::new(),
        }
    }

    /// Allocates the unallocated claims on a node.
    fn served_on(&self, node: &NodeInfo) -> Result<Served, Failure> {
        let unallocated: Vec<&Cached<Claim>> =
            self.claims.iter().filter(|claim| !claim.is_allocated()).collect();
        if unallocated.is_empty() {
            return Ok(Served::By(Vec::new()));
        }
        let pools = pools(&self.slices, node);
        let offers = offers(&pools);
        let requested = |claim| ClaimRequests::of(claim, &pools, &offers, self.caches);
        let requested = unallocated.into_iter().map(requested).collect::<Result<Vec<_>, _>>()?;
        Ok(match search(&requested, &pools, &offers, &self.taken, self.tainting.as_ref(), self.caches)? {
            SearchResult::Nothing => Served::NotAll,
            SearchResult::GaveUp => Served::TooHard,
            SearchResult::All(solutions) => {
                let decided = |(requested, solution)| Decided::of(requested, solution, &offers);
                Served::By(requested.iter().zip(&solutions).map(decided).collect())
            }
        })
    }
}

fn is_available(claim: &Claim, node: &NodeInfo) -> bool {
    let allocation = claim.status.allocation.as_ref();
    let selector = allocation.and_then(|allocation| allocation.node_selector.as_ref());
    selector.is_none_or(|selector| selector.matches(&node.name, &node.labels))
}

/// Checks that all requested classes exist.
fn check_classes(claim: &Cached<Claim>, caches: &DeviceCaches) -> Result<(), Refusal> {
    for request in &claim.spec.devices.requests {
        if request.exactly.is_none() && request.first_available.is_empty() {
            let (claim, request) = (claim.key(), &request.name);
            return Err(format!("resource claim {claim}, request {request}: unknown request type"));
        }
        for exact in request.exactly.iter().chain(&request.first_available) {
            let class = &exact.device_class_name;
            let there = caches.classes.objects().get(&Key::cluster(&**class)).is_some();
            if !there {
                let name = match exact.name.as_str() {
                    "" => request.name.clone(),
                    name => format!("{}/{name}", request.name),
                };
                return Err(format!("request {name}: device class {class} does not exist"));
            }
        }
    }
    Ok(())
}
