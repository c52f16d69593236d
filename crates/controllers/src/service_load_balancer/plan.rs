//! Plans what to do about a Service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use setpoint::Metadata;

use super::pool::AddressPool;
use super::view::Service;

pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Nothing,
    /// Assign this address.
    Ensure(IpAddr),
    /// The requested address is unavailable, for this reason.
    Refuse(String),
    /// Release its address.
    CleanUp,
}

/// Plans for a Service. `taken` are the addresses of all other Services.
pub(super) fn plan(service: &Service, meta: &Metadata, pool: &AddressPool, taken: &BTreeSet<IpAddr>) -> Plan {
    let marked = meta.has_finalizer(FINALIZER);
    if meta.is_being_deleted() || !service.wants_load_balancer() {
        return if marked { Plan::CleanUp } else { Plan::Nothing };
    }
    let has = service.address().and_then(|address| address.parse::<IpAddr>().ok());
    let wanted = match choose(service, has, pool, taken) {
        Ok(address) => address,
        Err(why) => return Plan::Refuse(why),
    };
    if marked && has == Some(wanted) { Plan::Nothing } else { Plan::Ensure(wanted) }
}

/// Chooses the requested address, the current one, or the first free one.
fn choose(
    service: &Service,
    has: Option<IpAddr>,
    pool: &AddressPool,
    taken: &BTreeSet<IpAddr>,
) -> Result<IpAddr, String> {
    let free = |address: &IpAddr| pool.has(*address) && !taken.contains(address);
    if !service.spec.load_balancer_ip.is_empty() {
        let asked = &service.spec.load_balancer_ip;
        let address = asked.parse().ok().filter(free);
        return address
            .ok_or_else(|| format!("the address {asked} is not in the pool, or another service has it"));
    }
    has.filter(free)
        .or_else(|| pool.for_services().find(|address| free(address)))
        .ok_or_else(|| "no address of the pool is free".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::cached;

    #[test]
    fn a_service_gets_keeps_and_releases_an_address() {
        let pool = AddressPool::parse("192.0.2.0/29").unwrap();
        let taken = BTreeSet::from(["192.0.2.2".parse().unwrap()]);
        let check = |metadata: Value, spec: Value, ip: &str, expected: Plan| {
            let ingress = if ip.is_empty() { json!([]) } else { json!([{"ip": ip}]) };
            let service =
                json!({"metadata": metadata, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}});
            let service = cached::<Service>(service);
            assert_eq!(plan(&service, service.meta(), &pool, &taken), expected, "{spec} {ip}");
        };
        let (new, marked) = (json!({"name": "s"}), json!({"name": "s", "finalizers": [FINALIZER]}));
        let gone =
            json!({"name": "s", "finalizers": [FINALIZER], "deletionTimestamp": "2025-01-01T00:00:00Z"});
        let wants = json!({"type": "LoadBalancer"});
        let ensure = |ip: &str| Plan::Ensure(ip.parse().unwrap());
        check(new.clone(), wants.clone(), "", ensure("192.0.2.3"));
        check(new.clone(), wants.clone(), "192.0.2.5", ensure("192.0.2.5"));
        check(marked.clone(), wants.clone(), "192.0.2.5", Plan::Nothing);
        check(marked.clone(), wants.clone(), "192.0.2.2", ensure("192.0.2.3"));
        check(marked.clone(), json!({"type": "ClusterIP"}), "192.0.2.5", Plan::CleanUp);
        check(gone, wants.clone(), "192.0.2.5", Plan::CleanUp);
        check(new.clone(), json!({"type": "ClusterIP"}), "", Plan::Nothing);
        check(new.clone(), json!({"type": "LoadBalancer", "loadBalancerClass": "x/y"}), "", Plan::Nothing);
        let asks = |ip: &str| json!({"type": "LoadBalancer", "loadBalancerIP": ip});
        check(new.clone(), asks("192.0.2.6"), "", ensure("192.0.2.6"));
        let refused = "the address 192.0.2.2 is not in the pool, or another service has it";
        check(new, asks("192.0.2.2"), "", Plan::Refuse(refused.into()));
    }
}
