//! Allocates cluster IPs and node ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use setpoint_clock::Rng;

use super::addresses::Stacks;
use super::pool::{Pool, Span, Unavailable};
use super::range::{self, Family};
use super::{Allocator, Reservation, families};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::server::StartError;
use crate::status::{Named, Status};

/// Allocates addresses from one range, or one range per family, and ports.
pub(super) struct ServiceAllocator {
    /// The configured families, the primary one first.
    families: Vec<Family>,
    rng: Rng,
    ports: (u16, u16),
    pools: Arc<Mutex<Pools>>,
}

/// Tracks the addresses that IPAddresses mark as in use.
pub(super) struct AddressTracker(Arc<Mutex<Pools>>);

/// Tracks the ranges that ServiceCIDRs add.
pub(super) struct RangeTracker(Arc<Mutex<Pools>>);

#[derive(Debug)]
struct Pools {
    addresses: Stacks,
    ports: Pool,
}

/// The allocations of a write, and what it releases once stored.
#[derive(Default)]
struct Taken {
    addresses: Vec<IpAddr>,
    ports: Vec<u128>,
    freed_addresses: Vec<IpAddr>,
    freed_ports: Vec<u128>,
}

/// Builds the allocator and the trackers of addresses and ranges.
pub(super) fn reserves(
    cidr: &str,
    ports: (u16, u16),
    rng: Rng,
) -> Result<(ServiceAllocator, AddressTracker, RangeTracker), StartError> {
    let ranges = range::parse_all(cidr)?;
    let families = ranges.iter().map(|(family, _)| *family).collect();
    let (first, last) = (u128::from(ports.0), u128::from(ports.1));
    let reserved_count = range::reserved_count(last.saturating_sub(first) + 1, 16, 128, 32);
    let pools =
        Pools { addresses: Stacks::new(&ranges), ports: Pool::new(Span { first, last, reserved_count }) };
    let pools = Arc::new(Mutex::new(pools));
    let services = ServiceAllocator { families, rng, ports, pools: pools.clone() };
    Ok((services, AddressTracker(pools.clone()), RangeTracker(pools)))
}

impl Allocator for AddressTracker {
    fn stored_as(&self) -> &'static str {
        "networking.k8s.io/ipaddresses"
    }

    fn note(&self, address: &Value) {
        if let Ok(address) = address.at("metadata").text("name").parse() {
            self.0.lock().addresses.note(address);
        }
    }

    fn observe(&self, address: &Value) {
        self.note(address);
    }

    fn release(&self, address: &Value) {
        if let Ok(address) = address.at("metadata").text("name").parse() {
            self.0.lock().addresses.release(address);
        }
    }
}

impl Allocator for RangeTracker {
    fn stored_as(&self) -> &'static str {
        "networking.k8s.io/servicecidrs"
    }

    fn note(&self, range: &Value) {
        self.0.lock().addresses.note_ranges(range);
    }

    fn observe(&self, range: &Value) {
        self.note(range);
    }

    fn release(&self, range: &Value) {
        self.0.lock().addresses.forget_ranges(range);
    }
}

impl ServiceAllocator {
    /// Runs an allocation; if it fails, releases what it has allocated so far.
    fn transact(
        &self,
        allocate: impl FnOnce(&mut Pools, &mut Taken) -> Result<(), Status>,
    ) -> Result<Reservation, Status> {
        let mut taken = Taken::default();
        let mut pools = self.pools.lock();
        if let Err(status) = allocate(&mut pools, &mut taken) {
            pools.return_to_pools(&taken.addresses, &taken.ports);
            return Err(status);
        }
        drop(pools);
        let (undo, finish) = (self.pools.clone(), self.pools.clone());
        let (addresses, ports) = (taken.addresses, taken.ports);
        let (freed_addresses, freed_ports) = (taken.freed_addresses, taken.freed_ports);
        let (gained, lost) = (addresses.clone(), freed_addresses.clone());
        let reservation = Reservation::new(
            move || undo.lock().return_to_pools(&addresses, &ports),
            move || finish.lock().return_to_pools(&freed_addresses, &freed_ports),
        );
        Ok(reservation.of_addresses(gained, lost))
    }

    fn take_addresses(
        &self,
        pools: &mut Pools,
        taken: &mut Taken,
        service: &mut Value,
    ) -> Result<(), Status> {
        let spec = service.at("spec");
        if !has_cluster_ip(spec) || is_headless(spec) {
            return Ok(());
        }
        for at in 0..spec.list("ipFamilies").len() {
            self.take_address(pools, taken, service, at)?;
        }
        Ok(())
    }

    /// Allocates an address of one of the service's families: the requested one, or any.
    fn take_address(
        &self,
        pools: &mut Pools,
        taken: &mut Taken,
        service: &mut Value,
        at: usize,
    ) -> Result<(), Status> {
        let spec = service.at("spec");
        let Some(family) = spec.list("ipFamilies").get(at).and_then(Family::named) else { return Ok(()) };
        let mut addresses = spec.list("clusterIPs").to_vec();
        addresses.resize(addresses.len().max(at + 1), "".into());
        let wanted = addresses[at].as_str().unwrap_or("").to_owned();
        let address = match wanted.as_str() {
            "" => pools
                .addresses
                .take_any(family, &self.rng)
                .map_err(|_| Status::internal("failed to allocate a serviceIP: range is full"))?,
            wanted => {
                let Ok(address) = wanted.parse::<IpAddr>() else { return Ok(()) };
                let taking = pools.addresses.take(address);
                taking.map_err(|why| refuse_address(service, addresses.clone(), wanted, why))?;
                address
            }
        };
        taken.addresses.push(address);
        addresses[at] = address.to_string().into();
        let spec = service.object_mut("spec");
        spec.set("clusterIP", addresses[0].clone());
        spec.set("clusterIPs", addresses);
        Ok(())
    }

    fn take_port(&self, pools: &mut Pools, taken: &mut Taken, port: i64) -> Result<(), String> {
        let number = u128::try_from(port).unwrap_or(0);
        pools.ports.take(number).map_err(|why| match why {
            Unavailable::OutOfRange => format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                self.ports.0, self.ports.1
            ),
            Unavailable::Taken => "provided port is already allocated".into(),
            Unavailable::Full => "range is full".into(),
        })?;
        taken.ports.push(number);
        Ok(())
    }

    fn take_any_port(&self, pools: &mut Pools, taken: &mut Taken) -> Result<i64, Status> {
        let number = pools.ports.take_any(&self.rng);
        let number = number.map_err(|_| Status::internal("failed to allocate a nodePort: range is full"))?;
        taken.ports.push(number);
        Ok(number as i64)
    }

    /// Allocates a node port for each port. Ports with the same number (TCP and UDP) share one unless the client says
    /// otherwise.
    fn take_node_ports(
        &self,
        pools: &mut Pools,
        taken: &mut Taken,
        service: &mut Value,
    ) -> Result<(), Status> {
        let mut ports = service.at("spec").list("ports").to_vec();
        let mut shared: BTreeMap<i64, i64> = BTreeMap::new();
        let mut requested: BTreeMap<i64, i64> = BTreeMap::new();
        for port in ports.iter().filter(|port| port.count("nodePort") != 0) {
            requested.entry(port.count("port")).or_insert(port.count("nodePort"));
        }
        for (at, listed) in ports.iter_mut().enumerate() {
            let (port, wanted) = (listed.count("port"), listed.count("nodePort"));
            if wanted == 0 && !allocates_node_ports(service.at("spec")) {
                continue;
            }
            let node_port = match shared.get(&port).copied() {
                None => {
                    let node_port = match requested.get(&port).copied() {
                        Some(number) => {
                            let taking = self.take_port(pools, taken, number);
                            taking.map_err(|why| refuse_port(service, at, number, why))?;
                            number
                        }
                        None => self.take_any_port(pools, taken)?,
                    };
                    shared.insert(port, node_port);
                    node_port
                }
                Some(node_port) if wanted == 0 || wanted == node_port => node_port,
                Some(_) => {
                    let taking = self.take_port(pools, taken, wanted);
                    taking.map_err(|why| refuse_port(service, at, wanted, why))?;
                    wanted
                }
            };
            listed.set("nodePort", node_port);
        }
        service.object_mut("spec").set("ports", ports);
        Ok(())
    }

    fn take_health_port(
        &self,
        pools: &mut Pools,
        taken: &mut Taken,
        service: &mut Value,
    ) -> Result<(), Status> {
        let wanted = service.at("spec").count("healthCheckNodePort");
        if wanted != 0 {
            let taking = self.take_port(pools, taken, wanted);
            return taking.map_err(|why| {
                Status::internal(format_args!(
                    "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
                ))
            });
        }
        let port = self.take_any_port(pools, taken)?;
        service.object_mut("spec").set("healthCheckNodePort", port);
        Ok(())
    }

    fn update_addresses(
        &self,
        pools: &mut Pools,
        taken: &mut Taken,
        new: &mut Value,
        old: &Value,
    ) -> Result<(), Status> {
        let (had, has) = (has_cluster_ip(old.at("spec")), has_cluster_ip(new.at("spec")));
        if has && families::stays_dual(new.at("spec"), old.at("spec")) {
            return Ok(());
        }
        if !had && has {
            return self.take_addresses(pools, taken, new);
        }
        if is_headless(old.at("spec")) {
            return Ok(());
        }
        if had && !has {
            taken.freed_addresses.extend(addresses_of(old));
            return Ok(());
        }
        let families = |service: &Value| service.at("spec").list("ipFamilies").len();
        match (families(old), families(new)) {
            (1, 2) => self.take_address(pools, taken, new, 1),
            (2, 1) => {
                taken.freed_addresses.extend(addresses_of(old).nth(1));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn update_ports(
        &self,
        pools: &mut Pools,
        taken: &mut Taken,
        new: &mut Value,
        old: &Value,
    ) -> Result<(), Status> {
        let held: BTreeSet<i64> = node_ports_of(old).collect();
        if uses_node_ports(new.at("spec")) {
            self.take_changed_node_ports(pools, taken, new, &held)?;
            let kept: BTreeSet<i64> = node_ports_of(new).collect();
            taken
                .freed_ports
                .extend(held.iter().filter(|port| !kept.contains(port)).map(|port| *port as u128));
        } else if uses_node_ports(old.at("spec")) {
            taken.freed_ports.extend(held.iter().map(|port| *port as u128));
        }
        match (needs_health_port(old.at("spec")), needs_health_port(new.at("spec"))) {
            (false, true) => self.take_health_port(pools, taken, new)?,
            (true, false) => taken.freed_ports.extend(health_port_of(old)),
            _ => {}
        }
        Ok(())
    }

    fn take_changed_node_ports(
        &self,
        pools: &mut Pools,
        taken: &mut Taken,
        new: &mut Value,
        held: &BTreeSet<i64>,
    ) -> Result<(), Status> {
        let mut ports = new.at("spec").list("ports").to_vec();
        let mut seen: BTreeSet<(String, i64)> = BTreeSet::new();
        for (at, port) in ports.iter_mut().enumerate() {
            let wanted = port.count("nodePort");
            if wanted == 0 && !allocates_node_ports(new.at("spec")) {
                continue;
            }
            let node_port = if wanted == 0 {
                self.take_any_port(pools, taken)?
            } else {
                let is_held = held.contains(&wanted) || taken.ports.contains(&(wanted as u128));
                if !is_held {
                    let taking = self.take_port(pools, taken, wanted);
                    taking.map_err(|why| refuse_port(new, at, wanted, why))?;
                }
                wanted
            };
            let this = (port.text("protocol").to_string(), node_port);
            if !seen.insert(this.clone()) {
                return Err(Status::unknown(format!("duplicate nodePort: {{{} {}}}", this.0, this.1)));
            }
            port.set("nodePort", node_port);
        }
        new.object_mut("spec").set("ports", ports);
        Ok(())
    }
}

impl Allocator for ServiceAllocator {
    fn stored_as(&self) -> &'static str {
        "services"
    }

    fn note(&self, service: &Value) {
        let mut pools = self.pools.lock();
        for address in addresses_of(service) {
            // Services that already share an address keep it.
            pools.addresses.note(address);
        }
        for port in ports_of(service) {
            let _ = pools.ports.take(port);
        }
    }

    fn for_create(&self, service: &mut Value) -> Result<Reservation, Status> {
        families::normalize_cluster_ips(service, None);
        if has_cluster_ip(service.at("spec")) && !families::is_well_formed(service.at("spec")) {
            return Ok(Reservation::nothing());
        }
        families::set_families(service, None, &self.families)?;
        self.transact(|pools, taken| {
            self.take_addresses(pools, taken, service)?;
            if uses_node_ports(service.at("spec")) {
                self.take_node_ports(pools, taken, service)?;
            }
            if needs_health_port(service.at("spec")) {
                self.take_health_port(pools, taken, service)?;
            }
            Ok(())
        })
    }

    fn for_update(&self, new: &mut Value, old: &Value) -> Result<Reservation, Status> {
        carry_over(new, old);
        families::normalize_cluster_ips(new, Some(old));
        if !has_cluster_ip(new.at("spec")) {
            // Meaningless for an external name.
            new.object_mut("spec").unset("internalTrafficPolicy");
        } else if !families::is_well_formed(new.at("spec")) {
            return Ok(Reservation::nothing());
        }
        families::set_families(new, Some(old), &self.families)?;
        self.transact(|pools, taken| {
            self.update_addresses(pools, taken, new, old)?;
            self.update_ports(pools, taken, new, old)
        })
    }

    fn addresses(&self, service: &Value) -> Vec<IpAddr> {
        addresses_of(service).collect()
    }

    fn release(&self, service: &Value) {
        let addresses: Vec<IpAddr> = addresses_of(service).collect();
        let ports: Vec<u128> = ports_of(service).collect();
        self.pools.lock().return_to_pools(&addresses, &ports);
    }
}

impl Pools {
    fn return_to_pools(&mut self, addresses: &[IpAddr], ports: &[u128]) {
        for address in addresses {
            self.addresses.release(*address);
        }
        for port in ports {
            self.ports.release(*port);
        }
    }
}

/// Restores allocated values that the client omitted, so that it need not read them first.
fn carry_over(new: &mut Value, old: &Value) {
    let old = old.at("spec");
    let spec = new.object_mut("spec");
    if has_cluster_ip(old) && has_cluster_ip(spec) {
        spec.or_text("clusterIP", old.text("clusterIP"));
        if spec.text("clusterIP").is_empty() {
            spec.unset("clusterIP");
        }
        if spec.list("clusterIPs").is_empty() && !old.list("clusterIPs").is_empty() {
            spec.restore("clusterIPs", old);
        }
    }
    if needs_node_ports(old) && needs_node_ports(spec) {
        carry_over_node_ports(spec, old);
    }
    if needs_health_port(old) && needs_health_port(spec) && spec.count("healthCheckNodePort") == 0 {
        spec.restore("healthCheckNodePort", old);
    }
}

fn carry_over_node_ports(spec: &mut Value, old: &Value) {
    let node_ports = |spec: &Value| -> BTreeSet<i64> {
        spec.list("ports").iter().map(|port| port.count("nodePort")).filter(|port| *port != 0).collect()
    };
    let (now, before) = (node_ports(spec), node_ports(old));
    // If several ports have the same name, the last one wins.
    let by_name = old.list("ports").iter().map(|port| (port.text("name"), port.count("nodePort")));
    let by_name: BTreeMap<&str, i64> = by_name.collect();
    for port in spec.list_mut("ports").iter_mut().filter(|port| port.count("nodePort") == 0) {
        let node_port = by_name.get(port.text("name")).copied().unwrap_or(0);
        let is_used = now.contains(&node_port) && before.contains(&node_port);
        if node_port != 0 && !is_used {
            port.set("nodePort", node_port);
        }
    }
}

pub(super) fn has_cluster_ip(spec: &Value) -> bool {
    spec.text("type") != "ExternalName"
}

pub(super) fn is_headless(spec: &Value) -> bool {
    spec.list("clusterIPs").first().is_some_and(|first| first == "None")
}

fn uses_node_ports(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
}

/// Whether ports without a node port get one.
fn allocates_node_ports(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec.boolean("allocateLoadBalancerNodePorts") != Some(false),
        _ => false,
    }
}

fn needs_node_ports(spec: &Value) -> bool {
    allocates_node_ports(spec)
}

fn needs_health_port(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// Returns the cluster IPs of a service.
pub(crate) fn addresses_of(service: &Value) -> impl Iterator<Item = IpAddr> {
    let spec = service.at("spec");
    let ips = if has_cluster_ip(spec) { spec.list("clusterIPs") } else { &[] };
    ips.iter().filter_map(Value::as_str).filter_map(|ip| ip.parse().ok())
}

fn node_ports_of(service: &Value) -> impl Iterator<Item = i64> {
    service.at("spec").list("ports").iter().map(|port| port.count("nodePort")).filter(|port| *port != 0)
}

fn health_port_of(service: &Value) -> Option<u128> {
    let spec = service.at("spec");
    let port = spec.count("healthCheckNodePort");
    (needs_health_port(spec) && port > 0).then_some(port as u128)
}

fn ports_of(service: &Value) -> impl Iterator<Item = u128> {
    node_ports_of(service).map(|port| port as u128).chain(health_port_of(service))
}

fn invalid(service: &Value, errors: &Errors) -> Status {
    let name = crate::metadata::of(service).text("name");
    Status::invalid(Named { group: "", resource: "Service" }, name, errors)
}

fn refuse_address(service: &Value, all: Vec<Value>, wanted: &str, why: Unavailable) -> Status {
    let why = match why {
        Unavailable::Taken => "provided IP is already allocated",
        Unavailable::OutOfRange => "the provided network does not match the current range",
        Unavailable::Full => "range is full",
    };
    let mut errors = Errors::default();
    let path = Path::root("spec");
    let detail = format!("failed to allocate IP {wanted}: {why}");
    errors.invalid(&path.child("clusterIPs"), Value::Array(all), detail);
    invalid(service, &errors)
}

fn refuse_port(service: &Value, at: usize, port: i64, why: String) -> Status {
    let mut errors = Errors::default();
    let spec = Path::root("spec");
    let ports = spec.child("ports");
    errors.invalid(&ports.index(at).child("nodePort"), port, why);
    invalid(service, &errors)
}
