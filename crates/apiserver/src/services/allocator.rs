//! Chooses cluster IPs and node ports for services. Nothing is written: see [`Claim`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;
use setpoint_clock::Rng;
use setpoint_store::Store;

use super::claim::Claim;
use super::families;
use super::in_use::InUse;
use super::node_ports::NodePorts;
use super::range::{self, Family};
use super::repair::Leaks;
use super::span::{Span, Unavailable};
use crate::auth::store_view::StoreView;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::server::{Server, StartError};
use crate::status::{Named, Status};

/// Chooses addresses from one range, or one range per family and those of ServiceCIDRs, and ports.
pub(crate) struct ServiceAllocator {
    /// The configured ranges, the primary one first.
    own: Vec<(Family, Span)>,
    rng: Rng,
    in_use: StoreView<InUse>,
    pub(super) node_ports: NodePorts,
    pub(super) leaks: Leaks,
}

/// What is chosen for one write.
struct Choice<'a> {
    in_use: &'a InUse,
    own: &'a [(Family, Span)],
    /// The port range, and the ports in use, including those chosen for this write.
    range: Span,
    ports: BTreeSet<u128>,
    rng: &'a Rng,
    claim: Claim,
}

impl Choice<'_> {
    fn take_address(&mut self, address: IpAddr) -> Result<(), Unavailable> {
        self.in_use.check(self.own, address)?;
        self.claim.addresses.push(address);
        Ok(())
    }

    fn take_any_address(&mut self, family: Family) -> Result<IpAddr, Unavailable> {
        let address = self.in_use.any_free(self.own, family, self.rng)?;
        self.claim.addresses.push(address);
        Ok(address)
    }

    fn take_port(&mut self, port: u128) -> Result<(), Unavailable> {
        if !self.range.contains(port) {
            return Err(Unavailable::OutOfRange);
        }
        if !self.ports.insert(port) {
            return Err(Unavailable::Taken);
        }
        self.claim.ports.push(port);
        Ok(())
    }

    fn take_any_port(&mut self) -> Result<u128, Unavailable> {
        let port = self.range.any_free(|from| self.ports.range(from..).copied(), self.rng);
        let port = port.ok_or(Unavailable::Full)?;
        self.ports.insert(port);
        self.claim.ports.push(port);
        Ok(port)
    }
}

impl ServiceAllocator {
    pub(crate) fn new(
        cidrs: &str,
        ports: (u16, u16),
        store: &Arc<dyn Store>,
        rng: Rng,
    ) -> Result<Self, StartError> {
        let own = range::parse_all(cidrs)?;
        let in_use = StoreView::new(store.clone());
        Ok(Self { own, rng, in_use, node_ports: NodePorts::new(ports), leaks: Leaks::default() })
    }

    fn families(&self) -> Vec<Family> {
        self.own.iter().map(|(family, _)| *family).collect()
    }

    /// Looks at what is in use, as far as this server has seen it.
    pub(super) async fn look<T>(&self, server: &Server, look: impl FnOnce(&InUse) -> T) -> Result<T, Status> {
        self.in_use.with(look).await.map_err(|why| server.refusal(why))
    }

    /// Frees what a removed service had.
    pub(crate) async fn release(&self, server: &Server, service: &Value) {
        let claim = Claim::freed(addresses_of(service).collect(), ports_of(service).collect());
        claim.keep(server, service).await;
    }

    async fn choose(
        &self,
        server: &Server,
        with_ports: bool,
        choose: impl FnOnce(&mut Choice<'_>) -> Result<(), Status>,
    ) -> Result<Claim, Status> {
        let stored = if with_ports { self.node_ports.stored(server).await? } else { None };
        let range = self.node_ports.span();
        self.look(server, |in_use| {
            let mut ports = stored.unwrap_or_default();
            if with_ports {
                ports.extend(in_use.ports());
            }
            let (claim, own, rng) = (Claim::default(), &*self.own, &self.rng);
            let mut choice = Choice { in_use, own, range, ports, rng, claim };
            choose(&mut choice)?;
            Ok(choice.claim)
        })
        .await?
    }

    /// Chooses what a new service needs.
    pub(crate) async fn for_create(&self, server: &Server, service: &mut Value) -> Result<Claim, Status> {
        families::normalize_cluster_ips(service, None);
        if has_cluster_ip(service.at("spec")) && !families::is_well_formed(service.at("spec")) {
            return Ok(Claim::default());
        }
        families::set_families(service, None, &self.families())?;
        let spec = service.at("spec");
        let (uses_ports, needs_health) = (uses_node_ports(spec), needs_health_port(spec));
        self.choose(server, uses_ports || needs_health, |choice| {
            self.take_addresses(choice, service)?;
            if uses_ports {
                self.take_node_ports(choice, service)?;
            }
            if needs_health {
                self.take_health_port(choice, service)?;
            }
            Ok(())
        })
        .await
    }

    /// Chooses what a changed service needs, and what is free once it is stored.
    pub(crate) async fn for_update(
        &self,
        server: &Server,
        new: &mut Value,
        old: &Value,
    ) -> Result<Claim, Status> {
        carry_over(new, old);
        families::normalize_cluster_ips(new, Some(old));
        if !has_cluster_ip(new.at("spec")) {
            // Meaningless for an external name.
            new.object_mut("spec").unset("internalTrafficPolicy");
        } else if !families::is_well_formed(new.at("spec")) {
            return Ok(Claim::default());
        }
        families::set_families(new, Some(old), &self.families())?;
        let spec = new.at("spec");
        let with_ports = uses_node_ports(spec) || needs_health_port(spec);
        self.choose(server, with_ports, |choice| {
            self.update_addresses(choice, new, old)?;
            self.update_ports(choice, new, old)
        })
        .await
    }

    fn take_addresses(&self, choice: &mut Choice<'_>, service: &mut Value) -> Result<(), Status> {
        let spec = service.at("spec");
        if !has_cluster_ip(spec) || is_headless(spec) {
            return Ok(());
        }
        for at in 0..spec.list("ipFamilies").len() {
            self.take_address(choice, service, at)?;
        }
        Ok(())
    }

    /// Allocates an address of one of the service's families: the requested one, or any.
    fn take_address(&self, choice: &mut Choice<'_>, service: &mut Value, at: usize) -> Result<(), Status> {
        let spec = service.at("spec");
        let Some(family) = spec.list("ipFamilies").get(at).and_then(Family::named) else { return Ok(()) };
        let mut addresses = spec.list("clusterIPs").to_vec();
        addresses.resize(addresses.len().max(at + 1), "".into());
        let wanted = addresses[at].as_str().unwrap_or("").to_owned();
        let address = match wanted.as_str() {
            "" => choice
                .take_any_address(family)
                .map_err(|_| Status::internal("failed to allocate a serviceIP: range is full"))?,
            wanted => {
                let Ok(address) = wanted.parse::<IpAddr>() else { return Ok(()) };
                let taking = choice.take_address(address);
                taking.map_err(|why| refuse_address(service, addresses.clone(), wanted, why))?;
                address
            }
        };
        addresses[at] = address.to_string().into();
        let spec = service.object_mut("spec");
        spec.set("clusterIP", addresses[0].clone());
        spec.set("clusterIPs", addresses);
        Ok(())
    }

    fn take_port(&self, choice: &mut Choice<'_>, port: i64) -> Result<(), String> {
        let number = u128::try_from(port).unwrap_or(0);
        choice.take_port(number).map_err(|why| match why {
            Unavailable::OutOfRange => format!(
                "provided port is not in the valid range. The range of valid ports is {}",
                self.node_ports.range()
            ),
            Unavailable::Taken => "provided port is already allocated".into(),
            Unavailable::Full => "range is full".into(),
        })
    }

    fn take_any_port(&self, choice: &mut Choice<'_>) -> Result<i64, Status> {
        let number = choice.take_any_port();
        let number = number.map_err(|_| Status::internal("failed to allocate a nodePort: range is full"))?;
        Ok(number as i64)
    }

    /// Allocates a node port for each port. Ports with the same number (TCP and UDP) share one unless the client says
    /// otherwise.
    fn take_node_ports(&self, choice: &mut Choice<'_>, service: &mut Value) -> Result<(), Status> {
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
                            let taking = self.take_port(choice, number);
                            taking.map_err(|why| refuse_port(service, at, number, why))?;
                            number
                        }
                        None => self.take_any_port(choice)?,
                    };
                    shared.insert(port, node_port);
                    node_port
                }
                Some(node_port) if wanted == 0 || wanted == node_port => node_port,
                Some(_) => {
                    let taking = self.take_port(choice, wanted);
                    taking.map_err(|why| refuse_port(service, at, wanted, why))?;
                    wanted
                }
            };
            listed.set("nodePort", node_port);
        }
        service.object_mut("spec").set("ports", ports);
        Ok(())
    }

    fn take_health_port(&self, choice: &mut Choice<'_>, service: &mut Value) -> Result<(), Status> {
        let wanted = service.at("spec").count("healthCheckNodePort");
        if wanted != 0 {
            let taking = self.take_port(choice, wanted);
            return taking.map_err(|why| {
                Status::internal(format_args!(
                    "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
                ))
            });
        }
        let port = self.take_any_port(choice)?;
        service.object_mut("spec").set("healthCheckNodePort", port);
        Ok(())
    }

    fn update_addresses(&self, choice: &mut Choice<'_>, new: &mut Value, old: &Value) -> Result<(), Status> {
        let (had, has) = (has_cluster_ip(old.at("spec")), has_cluster_ip(new.at("spec")));
        if has && families::stays_dual(new.at("spec"), old.at("spec")) {
            return Ok(());
        }
        if !had && has {
            return self.take_addresses(choice, new);
        }
        if is_headless(old.at("spec")) {
            return Ok(());
        }
        if had && !has {
            choice.claim.freed_addresses.extend(addresses_of(old));
            return Ok(());
        }
        let families = |service: &Value| service.at("spec").list("ipFamilies").len();
        match (families(old), families(new)) {
            (1, 2) => self.take_address(choice, new, 1),
            (2, 1) => {
                choice.claim.freed_addresses.extend(addresses_of(old).nth(1));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn update_ports(&self, choice: &mut Choice<'_>, new: &mut Value, old: &Value) -> Result<(), Status> {
        let held: BTreeSet<i64> = node_ports_of(old).collect();
        if uses_node_ports(new.at("spec")) {
            self.take_changed_node_ports(choice, new, &held)?;
            let kept: BTreeSet<i64> = node_ports_of(new).collect();
            choice
                .claim
                .freed_ports
                .extend(held.iter().filter(|port| !kept.contains(port)).map(|port| *port as u128));
        } else if uses_node_ports(old.at("spec")) {
            choice.claim.freed_ports.extend(held.iter().map(|port| *port as u128));
        }
        match (needs_health_port(old.at("spec")), needs_health_port(new.at("spec"))) {
            (false, true) => self.take_health_port(choice, new)?,
            (true, false) => choice.claim.freed_ports.extend(health_port_of(old)),
            _ => {}
        }
        Ok(())
    }

    fn take_changed_node_ports(
        &self,
        choice: &mut Choice<'_>,
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
                self.take_any_port(choice)?
            } else {
                let is_held = held.contains(&wanted) || choice.claim.ports.contains(&(wanted as u128));
                if !is_held {
                    let taking = self.take_port(choice, wanted);
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

pub(super) fn ports_of(service: &Value) -> impl Iterator<Item = u128> {
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
