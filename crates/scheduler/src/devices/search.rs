//! Matches devices to requests by backtracking over claims, requests and devices. The first solution wins. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use setpoint_device::Rules;

use super::caches::DeviceCaches;
use super::pools::{Offer, Pool};
use super::requests::{Amount, ClaimRequests, DeviceRequest, Failure, MAX_DEVICES};
use super::view::{Constraint, DeviceId};

/// The step limit of a search. A step takes about a microsecond, so this is a tenth of a second; v1.34 allows ten
/// seconds, but there the search does not block other pods.
const MAX_STEPS: u32 = 100_000;

/// The devices allocated to a claim.
#[derive(Clone, Default)]
pub(super) struct Solution {
    /// In request order.
    pub(super) devices: Vec<Taken>,
    /// The chosen alternative of each request.
    pub(super) chosen: Vec<usize>,
}

/// A device that satisfies a request.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) request: usize,
    pub(super) alternative: usize,
    pub(super) offer: usize,
}

/// The result of a search.
pub(super) enum SearchResult {
    All(Vec<Solution>),
    Nothing,
    /// The search exceeded its step limit.
    GaveUp,
}

pub(super) fn search(
    claims: &[ClaimRequests<'_>],
    pools: &[Pool<'_>],
    offers: &[Offer<'_>],
    taken: &BTreeMap<DeviceId, usize>,
    tainting: Option<&Rules>,
    caches: &DeviceCaches,
) -> Result<SearchResult, Failure> {
    let of_claim = |requested: &ClaimRequests<'_>| Solution {
        devices: Vec::new(),
        chosen: vec![0; requested.requests.len()],
    };
    let mut search = Search {
        claims,
        pools,
        offers,
        caches,
        tainting,
        in_use: offers.iter().map(|offer| taken.contains_key(&offer.id)).collect(),
        taking: vec![BTreeSet::new(); offers.len()],
        fits: BTreeMap::new(),
        rules: claims.iter().map(rules_of).collect(),
        solutions: claims.iter().map(of_claim).collect(),
        steps: 0,
    };
    match search.advance(At::default()) {
        Ok(Step::Done) => Ok(SearchResult::All(search.solutions)),
        Ok(_) => Ok(SearchResult::Nothing),
        Err(Stop::Failure(why)) => Err(why),
        Err(Stop::GaveUp) => Ok(SearchResult::GaveUp),
    }
}

/// The current position: a device of a request of a claim.
#[derive(Clone, Copy, Default)]
struct At {
    claim: usize,
    request: usize,
    /// The chosen alternative of a prioritized list.
    alternative: Option<usize>,
    device: usize,
    /// Where to continue in the offers. Earlier offers were tried for the previous devices of this request; the same
    /// devices in another order would fail as well.
    from: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    NoWay,
    /// The claim would exceed the device limit.
    TooMany,
}

enum Stop {
    Failure(Failure),
    GaveUp,
}

struct Search<'a> {
    claims: &'a [ClaimRequests<'a>],
    pools: &'a [Pool<'a>],
    offers: &'a [Offer<'a>],
    caches: &'a DeviceCaches,
    /// Device taint rules, if device taints are enabled.
    tainting: Option<&'a Rules>,
    in_use: Vec<bool>,
    /// The claims that each device is taken for in this search.
    taking: Vec<BTreeSet<usize>>,
    /// Cached match results by claim, request, alternative and device.
    fits: BTreeMap<(usize, usize, usize, usize), bool>,
    /// By claim.
    rules: Vec<Vec<Rule<'a>>>,
    solutions: Vec<Solution>,
    steps: u32,
}

impl Search<'_> {
    fn advance(&mut self, at: At) -> Result<Step, Stop> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(Stop::GaveUp);
        }
        let claims = self.claims;
        let Some(claim) = claims.get(at.claim) else { return Ok(Step::Done) };
        let Some(requested) = claim.requests.get(at.request) else {
            // Another choice for an earlier claim may still succeed, so this is not yet "too many".
            let next = self.advance(At { claim: at.claim + 1, ..At::default() })?;
            return Ok(if next == Step::TooMany { Step::NoWay } else { next });
        };
        if requested.is_list() && at.alternative.is_none() {
            return self.choose(at, requested.alternatives.len());
        }
        let alternative = at.alternative.unwrap_or(0);
        let Some(device_request) = requested.alternatives.get(alternative) else { return Ok(Step::NoWay) };
        if matches!(&device_request.amount, Amount::All(all) if all.is_empty()) {
            return Ok(Step::NoWay);
        }
        if at.device >= device_request.amount.count() {
            return self.advance(At { claim: at.claim, request: at.request + 1, ..At::default() });
        }
        let after = self.solutions[at.claim].devices.len() + device_request.amount.count() - at.device;
        if after > MAX_DEVICES {
            return Ok(Step::TooMany);
        }
        match &device_request.amount {
            Amount::All(all) => self.take_next(at, alternative, device_request, all[at.device]),
            Amount::Count(_) => self.take_any(at, alternative, device_request),
        }
    }

    /// Tries alternatives in order, and takes the first that works.
    fn choose(&mut self, at: At, alternatives: usize) -> Result<Step, Stop> {
        let mut all_too_many = true;
        for alternative in 0..alternatives {
            match self.advance(At { alternative: Some(alternative), ..at })? {
                Step::TooMany => continue,
                Step::NoWay => all_too_many = false,
                Step::Done => {
                    self.solutions[at.claim].chosen[at.request] = alternative;
                    return Ok(Step::Done);
                }
            }
        }
        Ok(if all_too_many { Step::TooMany } else { Step::NoWay })
    }

    /// Takes the next device of an `All` request. Every device is needed, so the order does not matter.
    fn take_next(
        &mut self,
        at: At,
        alternative: usize,
        device_request: &DeviceRequest<'_>,
        offer: usize,
    ) -> Result<Step, Stop> {
        if !self.is_free(offer, at.claim, device_request) {
            return Ok(Step::NoWay);
        }
        if !self.take(at, alternative, offer) {
            let (claim, id) = (self.claims[at.claim].claim.key(), &self.offers[offer].id);
            let request = self.claims[at.claim].requests[at.request].name_of(alternative);
            return Err(Stop::Failure(format!(
                "claim {claim}, request {request}: cannot add device {id} because a claim constraint would not be satisfied"
            )));
        }
        let next = self.advance(At { device: at.device + 1, ..at })?;
        if next != Step::Done {
            self.give_back(at, alternative, offer);
        }
        Ok(next)
    }

    fn take_any(
        &mut self,
        at: At,
        alternative: usize,
        device_request: &DeviceRequest<'_>,
    ) -> Result<Step, Stop> {
        for index in at.from..self.offers.len() {
            let pool = &self.pools[self.offers[index].pool];
            if let Some(twice) = pool.twice {
                let name = pool.name;
                return Err(Stop::Failure(format!("pool {name} is invalid: duplicate device name {twice}")));
            }
            if !self.is_free(index, at.claim, device_request)
                || !self.fits(at, alternative, device_request, index)?
                || !self.take(at, alternative, index)
            {
                continue;
            }
            let next = self.advance(At { device: at.device + 1, from: index + 1, ..at })?;
            if next == Step::Done {
                return Ok(next);
            }
            self.give_back(at, alternative, index);
            if next == Step::TooMany {
                return Ok(next);
            }
        }
        Ok(Step::NoWay)
    }

    /// Whether a device is free. Shared counters belong to a feature that is off by default in v1.34.
    fn is_free(&self, offer: usize, claim: usize, device_request: &DeviceRequest<'_>) -> bool {
        let tolerated = |rules| device_request.tolerates(self.offers[offer].taints(rules));
        let free = match device_request.exact.admin_access {
            Some(true) => !self.taking[offer].contains(&claim),
            _ => !self.in_use[offer] && self.taking[offer].is_empty(),
        };
        free && self.offers[offer].device.consumes_counters.is_empty() && self.tainting.is_none_or(tolerated)
    }

    fn fits(
        &mut self,
        at: At,
        alternative: usize,
        device_request: &DeviceRequest<'_>,
        offer: usize,
    ) -> Result<bool, Stop> {
        let key = (at.claim, at.request, alternative, offer);
        if let Some(known) = self.fits.get(&key) {
            return Ok(*known);
        }
        let claim = self.claims[at.claim].claim.key();
        let fits = device_request.wants(&self.offers[offer], claim, self.caches).map_err(Stop::Failure)?;
        self.fits.insert(key, fits);
        Ok(fits)
    }

    /// Takes a device if the claim's constraints allow it.
    fn take(&mut self, at: At, alternative: usize, offer: usize) -> bool {
        let requested = &self.claims[at.claim].requests[at.request];
        let (request, full) = (&*requested.request.name, requested.name_of(alternative));
        let rules = &mut self.rules[at.claim];
        let refused = rules.iter_mut().position(|rule| !rule.add(request, &full, &self.offers[offer]));
        if let Some(refused) = refused {
            rules[..refused].iter_mut().for_each(|rule| rule.remove(request, &full));
            return false;
        }
        self.taking[offer].insert(at.claim);
        self.solutions[at.claim].devices.push(Taken { request: at.request, alternative, offer });
        true
    }

    fn give_back(&mut self, at: At, alternative: usize, offer: usize) {
        let requested = &self.claims[at.claim].requests[at.request];
        let (request, full) = (&*requested.request.name, requested.name_of(alternative));
        self.rules[at.claim].iter_mut().for_each(|rule| rule.remove(request, &full));
        self.taking[offer].remove(&at.claim);
        self.solutions[at.claim].devices.pop();
    }
}

/// A `matchAttribute` constraint: all devices of some requests have the same value of an attribute.
struct Rule<'a> {
    requests: &'a [String],
    attribute: &'a str,
    value: Option<&'a Value>,
    devices: usize,
}

fn rules_of<'a>(requested: &ClaimRequests<'a>) -> Vec<Rule<'a>> {
    let claim: &'a super::view::Claim = requested.claim;
    let rule = |constraint: &'a Constraint| {
        let attribute = constraint.match_attribute.as_deref()?;
        Some(Rule { requests: &constraint.requests, attribute, value: None, devices: 0 })
    };
    claim.spec.devices.constraints.iter().filter_map(rule).collect()
}

impl<'a> Rule<'a> {
    fn concerns(&self, request: &str, full: &str) -> bool {
        self.requests.is_empty() || self.requests.iter().any(|name| name == request || name == full)
    }

    /// Adds a device if the constraint allows it. Returns whether it did.
    fn add(&mut self, request: &str, full: &str, offer: &Offer<'a>) -> bool {
        if !self.concerns(request, full) {
            return true;
        }
        let Some(value) = attribute(offer, self.attribute) else { return false };
        if self.devices > 0 && self.value != Some(value) {
            return false;
        }
        self.value = Some(value);
        self.devices += 1;
        true
    }

    fn remove(&mut self, request: &str, full: &str) {
        if self.concerns(request, full) {
            self.devices -= 1;
        }
    }
}

/// Looks up an attribute by its qualified name. The domain may be omitted for attributes of the driver's own.
fn attribute<'a>(offer: &Offer<'a>, name: &str) -> Option<&'a Value> {
    let attributes = &offer.device.attributes;
    attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        attributes.get(id).filter(|_| domain == &*offer.id.driver)
    })
}
