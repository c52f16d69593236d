//! Resolves the requests of claims for a node. Pure.

use setpoint::{Cached, Key};
use setpoint_device::{SelectorError, Taint};

use super::caches::DeviceCaches;
use super::pools::{Offer, Pool};
use super::view::{Claim, Class, Request, Wish};

/// The maximum number of devices per claim.
pub(super) const MOST_DEVICES: usize = 32;

/// Why no allocation can be attempted: a claim or class is invalid. The v1.34 message.
pub(super) type Failure = String;

/// A claim that needs devices.
pub(super) struct ClaimAsks<'a> {
    pub(super) claim: &'a Cached<Claim>,
    pub(super) requests: Vec<Asks<'a>>,
}

/// A request with its alternatives, one of which must be satisfied.
pub(super) struct Asks<'a> {
    pub(super) request: &'a Request,
    pub(super) alternatives: Vec<Ask<'a>>,
}

/// A request for devices of one class.
pub(super) struct Ask<'a> {
    pub(super) wish: &'a Wish,
    pub(super) class: Cached<Class>,
    pub(super) amount: Amount,
}

/// The number of devices requested.
pub(super) enum Amount {
    Count(usize),
    /// All matching devices, which are these.
    All(Vec<usize>),
}

impl Amount {
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Count(count) => *count,
            Self::All(devices) => devices.len(),
        }
    }
}

impl Asks<'_> {
    /// Whether the request is a prioritized list, even of one alternative.
    pub(super) fn is_list(&self) -> bool {
        self.request.exactly.is_none()
    }

    /// Returns the name under which an alternative's devices are allocated.
    pub(super) fn name_of(&self, alternative: usize) -> String {
        match self.is_list() {
            false => self.request.name.clone(),
            true => format!("{}/{}", self.request.name, self.alternatives[alternative].wish.name),
        }
    }
}

impl<'a> ClaimAsks<'a> {
    pub(super) fn of(
        claim: &'a Cached<Claim>,
        pools: &[Pool<'_>],
        offers: &[Offer<'_>],
        caches: &DeviceCaches,
    ) -> Result<Self, Failure> {
        let view: &'a Claim = claim;
        let mut requests = Vec::new();
        for request in &view.spec.devices.requests {
            let wishes = request.exactly.iter().chain(&request.first_available);
            let ask = |wish| Ask::of(claim.key(), request, wish, pools, offers, caches);
            let alternatives = wishes.map(ask).collect::<Result<_, _>>()?;
            requests.push(Asks { request, alternatives });
        }
        let fewest = |asks: &Asks<'_>| asks.alternatives.iter().map(|ask| ask.amount.count()).min();
        let least: usize = requests.iter().filter_map(fewest).sum();
        if least > MOST_DEVICES {
            let key = claim.key();
            return Err(format!(
                "claim {key}: number of requested devices {least} exceeds the claim limit of {MOST_DEVICES}"
            ));
        }
        let constraints = &view.spec.devices.constraints;
        if let Some(at) = constraints.iter().position(|constraint| constraint.match_attribute.is_none()) {
            let key = claim.key();
            return Err(format!(
                "claim {key}, constraint #{at}: empty constraint (unsupported constraint type?)"
            ));
        }
        Ok(Self { claim, requests })
    }
}

impl<'a> Ask<'a> {
    fn of(
        claim: &Key,
        request: &Request,
        wish: &'a Wish,
        pools: &[Pool<'_>],
        offers: &[Offer<'_>],
        caches: &DeviceCaches,
    ) -> Result<Self, Failure> {
        let name = if wish.name.is_empty() { &request.name } else { &wish.name };
        if let Some(at) = wish.selectors.iter().position(|selector| selector.cel.is_none()) {
            return Err(format!(
                "claim {claim}, request {name}, selector #{at}: CEL expression empty (unsupported selector type?)"
            ));
        }
        let class = caches.classes.get(&Key::cluster(&*wish.device_class_name)).ok().flatten();
        let class = class.ok_or_else(|| {
            let class = &wish.device_class_name;
            format!("claim {claim}, request {name}: could not retrieve device class {class}: not found")
        })?;
        let mut ask = Self { wish, class, amount: Amount::Count(0) };
        ask.amount = match wish.allocation_mode.as_str() {
            "ExactCount" => Amount::Count(usize::try_from(wish.count).unwrap_or(0)),
            "All" => {
                whole(pools).map_err(|why| format!("claim {claim}, request {name}: {why}"))?;
                let mut all = Vec::new();
                for (index, offer) in offers.iter().enumerate() {
                    if ask.wants(offer, claim, caches)? {
                        all.push(index);
                    }
                }
                Amount::All(all)
            }
            mode => return Err(format!("claim {claim}, request {name}: unsupported count mode {mode}")),
        };
        Ok(ask)
    }

    /// Whether a device matches. Devices with binding conditions belong to a feature that is off by default in v1.34.
    pub(super) fn wants(
        &self,
        offer: &Offer<'_>,
        claim: &Key,
        caches: &DeviceCaches,
    ) -> Result<bool, Failure> {
        if !offer.device.binding_conditions.is_empty() {
            return Ok(false);
        }
        let class = self.class.key().name();
        let all_match = |selectors| caches.expressions.all_match(selectors, offer.facts());
        let of_class: Result<bool, SelectorError> = all_match(&self.class.spec.selectors);
        Ok(of_class.map_err(|why| format!("class {class}: {why}"))?
            && all_match(&self.wish.selectors).map_err(|why| format!("claim {claim}: {why}"))?)
    }

    /// Whether all taints of a device are tolerated.
    pub(super) fn tolerates(&self, taints: &[Taint]) -> bool {
        let tolerated = |taint| self.wish.tolerations.iter().any(|toleration| toleration.tolerates(taint));
        taints.iter().all(tolerated)
    }
}

/// `All` requests need complete pools.
fn whole(pools: &[Pool<'_>]) -> Result<(), Failure> {
    for pool in pools {
        if pool.is_incomplete {
            return Err(format!("asks for all devices, but resource pool {pool} is currently being updated"));
        }
        if pool.twice.is_some() {
            return Err(format!("asks for all devices, but resource pool {pool} is currently invalid"));
        }
    }
    Ok(())
}
