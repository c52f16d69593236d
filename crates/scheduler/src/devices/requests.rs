//! Resolves the requests of claims for a node. Pure.

use setpoint::{Cached, Key};
use setpoint_device::{SelectorError, Taint};

use super::caches::DeviceCaches;
use super::pools::{Offer, Pool};
use super::view::{Claim, Class, ExactRequest, Request};

/// The maximum number of devices per claim.
pub(super) const MAX_DEVICES: usize = 32;

/// Why no allocation can be attempted: a claim or class is invalid. The v1.34 message.
pub(super) type Failure = String;

/// A claim that needs devices.
pub(super) struct ClaimRequests<'a> {
    pub(super) claim: &'a Cached<Claim>,
    pub(super) requests: Vec<RequestAlternatives<'a>>,
}

/// A request with its alternatives, one of which must be satisfied.
pub(super) struct RequestAlternatives<'a> {
    pub(super) request: &'a Request,
    pub(super) alternatives: Vec<DeviceRequest<'a>>,
}

/// A request for devices of one class.
pub(super) struct DeviceRequest<'a> {
    pub(super) exact: &'a ExactRequest,
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

impl RequestAlternatives<'_> {
    /// Whether the request is a prioritized list, even of one alternative.
    pub(super) fn is_list(&self) -> bool {
        self.request.exactly.is_none()
    }

    /// Returns the name under which an alternative's devices are allocated.
    pub(super) fn name_of(&self, alternative: usize) -> String {
        match self.is_list() {
            false => self.request.name.clone(),
            true => format!("{}/{}", self.request.name, self.alternatives[alternative].exact.name),
        }
    }
}

impl<'a> ClaimRequests<'a> {
    pub(super) fn of(
        claim: &'a Cached<Claim>,
        pools: &[Pool<'_>],
        offers: &[Offer<'_>],
        caches: &DeviceCaches,
    ) -> Result<Self, Failure> {
        let view: &'a Claim = claim;
        let mut requests = Vec::new();
        for request in &view.spec.devices.requests {
            let exact_requests = request.exactly.iter().chain(&request.first_available);
            let device_request =
                |exact| DeviceRequest::of(claim.key(), request, exact, pools, offers, caches);
            let alternatives = exact_requests.map(device_request).collect::<Result<_, _>>()?;
            requests.push(RequestAlternatives { request, alternatives });
        }
        let fewest = |requested: &RequestAlternatives<'_>| {
            requested.alternatives.iter().map(|device_request| device_request.amount.count()).min()
        };
        let least: usize = requests.iter().filter_map(fewest).sum();
        if least > MAX_DEVICES {
            let key = claim.key();
            return Err(format!(
                "claim {key}: number of requested devices {least} exceeds the claim limit of {MAX_DEVICES}"
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

impl<'a> DeviceRequest<'a> {
    fn of(
        claim: &Key,
        request: &Request,
        exact: &'a ExactRequest,
        pools: &[Pool<'_>],
        offers: &[Offer<'_>],
        caches: &DeviceCaches,
    ) -> Result<Self, Failure> {
        let name = if exact.name.is_empty() { &request.name } else { &exact.name };
        if let Some(at) = exact.selectors.iter().position(|selector| selector.cel.is_none()) {
            return Err(format!(
                "claim {claim}, request {name}, selector #{at}: CEL expression empty (unsupported selector type?)"
            ));
        }
        let class = caches.classes.get(&Key::cluster(&*exact.device_class_name)).ok().flatten();
        let class = class.ok_or_else(|| {
            let class = &exact.device_class_name;
            format!("claim {claim}, request {name}: could not retrieve device class {class}: not found")
        })?;
        let mut device_request = Self { exact, class, amount: Amount::Count(0) };
        device_request.amount = match exact.allocation_mode.as_str() {
            "ExactCount" => Amount::Count(usize::try_from(exact.count).unwrap_or(0)),
            "All" => {
                whole(pools).map_err(|why| format!("claim {claim}, request {name}: {why}"))?;
                let mut all = Vec::new();
                for (index, offer) in offers.iter().enumerate() {
                    if device_request.wants(offer, claim, caches)? {
                        all.push(index);
                    }
                }
                Amount::All(all)
            }
            mode => return Err(format!("claim {claim}, request {name}: unsupported count mode {mode}")),
        };
        Ok(device_request)
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
            && all_match(&self.exact.selectors).map_err(|why| format!("claim {claim}: {why}"))?)
    }

    /// Whether all taints of a device are tolerated.
    pub(super) fn tolerates(&self, taints: &[Taint]) -> bool {
        let tolerated = |taint| self.exact.tolerations.iter().any(|toleration| toleration.tolerates(taint));
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
