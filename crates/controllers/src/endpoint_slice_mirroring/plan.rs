//! From Endpoints to slices. Pure.

use std::collections::BTreeMap;

use setpoint::{Cached, Metadata};

use super::MANAGER;
use crate::discovery::address::{self, Family};
use crate::discovery::changes::{Changes, Draft};
use crate::discovery::slice::{
    Conditions, Endpoint, EndpointSet, MANAGED_BY, Port, PortsKey, SERVICE_NAME, Slice, ports_key,
};
use crate::discovery::subset::{Address, Endpoints, Subset, repack};
use crate::discovery::trigger::LAST_CHANGE;

const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether Endpoints should be mirrored: they do not opt out and are not a leader election lock.
pub(super) fn is_to_be_mirrored(meta: &Metadata, endpoints: &Endpoints) -> bool {
    meta.label(SKIP) != Some("true") && !endpoints.metadata.annotations.contains_key(LEADER)
}

/// The changes, and the number of addresses left out.
pub(super) struct Plan {
    pub(super) changes: Changes,
    /// Addresses that are not IP addresses.
    pub(super) invalid: usize,
    /// Invalid addresses, and those beyond the limit.
    pub(super) skipped: usize,
}

type SliceKey = (Family, PortsKey);

#[derive(Default)]
struct Wanted {
    by_key: BTreeMap<SliceKey, (Vec<Port>, EndpointSet)>,
    invalid: usize,
    skipped: usize,
}

/// Plans the mirror of Endpoints, with at most `max_endpoints` addresses per subset.
pub(super) fn plan(
    endpoints: &Cached<Endpoints>,
    existing: Vec<Cached<Slice>>,
    max_endpoints: usize,
) -> Plan {
    let wanted = Wanted::of(endpoints, max_endpoints);
    let mut changes = Changes::default();
    let mut by_key: BTreeMap<SliceKey, Vec<Cached<Slice>>> = BTreeMap::new();
    for slice in existing {
        match slice.address_type {
            Some(family) => by_key.entry((family, slice.ports_key())).or_default().push(slice),
            None => changes.delete.push(slice),
        }
    }
    for (key, (ports, set)) in wanted.by_key {
        let slices = by_key.remove(&key).unwrap_or_default();
        mirror(endpoints, key.0, ports, set, slices, &mut changes);
    }
    changes.delete.extend(by_key.into_values().flatten());
    changes.recycle(|slice, draft| slice.address_type == Some(draft.family));
    Plan { changes, invalid: wanted.invalid, skipped: wanted.skipped }
}

/// Collects endpoints: all of one family with the same ports form one slice.
fn mirror(
    endpoints: &Cached<Endpoints>,
    family: Family,
    ports: Vec<Port>,
    set: EndpointSet,
    mut slices: Vec<Cached<Slice>>,
    changes: &mut Changes,
) {
    if set.is_empty() {
        return changes.delete.append(&mut slices);
    }
    let mut slices = slices.into_iter();
    let origin = slices.next();
    changes.delete.extend(slices);
    match origin {
        Some(slice) if is_up_to_date(endpoints, &set, &slice) => changes.unchanged.push(slice),
        origin => {
            let draft = draft(endpoints, family, ports, set, origin);
            let list = if draft.origin.is_some() { &mut changes.update } else { &mut changes.create };
            list.push(draft);
        }
    }
}

fn is_up_to_date(endpoints: &Cached<Endpoints>, wanted: &EndpointSet, slice: &Cached<Slice>) -> bool {
    let same =
        |endpoint: &Endpoint| wanted.get(&endpoint.key()).is_some_and(|other| other.same_state(endpoint));
    let of_namesake = slice.meta().owner_references.iter().any(|owner| {
        *owner.kind == *"Endpoints"
            && *owner.name == *endpoints.meta().name
            && owner.uid != endpoints.meta().uid
    });
    let own = slice.meta().labels.iter().filter(|(key, _)| *key != SERVICE_NAME && *key != MANAGED_BY);
    !of_namesake
        && slice.endpoints.len() == wanted.len()
        && slice.endpoints.iter().all(same)
        && own.eq(endpoints.meta().labels.iter())
        && slice.metadata.annotations == annotations(endpoints)
}

fn draft(
    endpoints: &Cached<Endpoints>,
    family: Family,
    ports: Vec<Port>,
    set: EndpointSet,
    origin: Option<Cached<Slice>>,
) -> Draft {
    let own = endpoints.meta().labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut labels: BTreeMap<String, String> = own.collect();
    labels.insert(SERVICE_NAME.to_owned(), endpoints.meta().name.to_string());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let endpoints_of = set.into_values().collect();
    Draft { origin, labels, annotations: annotations(endpoints), family, ports, endpoints: endpoints_of }
}

fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut annotations = endpoints.metadata.annotations.clone();
    annotations.retain(|name, _| name != LAST_CHANGE && name != LAST_APPLIED);
    annotations
}

impl Wanted {
    fn of(endpoints: &Endpoints, max_endpoints: usize) -> Self {
        let mut wanted = Self::default();
        repack(&endpoints.subsets).iter().for_each(|subset| wanted.add(subset, max_endpoints));
        wanted
    }

    fn add(&mut self, subset: &Subset, max_endpoints: usize) {
        let ports: Vec<Port> = subset.ports.iter().map(Port::from).collect();
        let key = ports_key(ports.clone());
        for family in [Family::IPv4, Family::IPv6] {
            self.by_key.entry((family, key.clone())).or_insert_with(|| (ports.clone(), EndpointSet::new()));
        }
        let ready = subset.addresses.iter().map(|address| (address, true));
        let all = ready.chain(subset.not_ready_addresses.iter().map(|address| (address, false)));
        let mut added = 0;
        for (address, ready) in all {
            if added == max_endpoints {
                break;
            }
            match endpoint(address, ready) {
                Some((family, endpoint)) => {
                    added += 1;
                    if let Some((_, set)) = self.by_key.get_mut(&(family, key.clone())) {
                        set.insert(endpoint.key(), endpoint);
                    }
                }
                None => self.invalid += 1,
            }
        }
        self.skipped += subset.addresses.len() + subset.not_ready_addresses.len() - added;
    }
}

fn endpoint(address: &Address, ready: bool) -> Option<(Family, Endpoint)> {
    let ip = address::parse(&address.ip)?;
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Conditions { ready: Some(ready), ..Conditions::default() },
        hostname: Some(address.hostname.clone()).filter(|hostname| !hostname.is_empty()),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        ..Endpoint::default()
    };
    Some((Family::of(ip), endpoint))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MAX_ENDPOINTS: usize = 1000;
    use crate::workload::fixtures::cached;

    fn endpoints(subsets: Value) -> Cached<Endpoints> {
        let annotations = json!({"note": "n", LAST_APPLIED: "{}"});
        let metadata = json!({"name": "e", "namespace": "ns", "uid": "e", "labels": {"a": "b"}, "annotations": annotations});
        cached(json!({"metadata": metadata, "subsets": subsets}))
    }

    fn subset(ips: &[&str], port: i32) -> Value {
        let addresses: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"addresses": addresses, "ports": [{"name": "http", "port": port, "protocol": "TCP"}]})
    }

    fn stored(name: &str, draft: &Draft) -> Cached<Slice> {
        cached(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": draft.labels, "annotations": draft.annotations},
            "addressType": draft.family, "ports": draft.ports, "endpoints": draft.endpoints,
        }))
    }

    /// Formats each draft as `family port addresses`.
    fn words(drafts: &[Draft]) -> Vec<String> {
        let word = |draft: &Draft| {
            let ips: Vec<_> =
                draft.endpoints.iter().flat_map(|endpoint| endpoint.addresses.clone()).collect();
            let port = draft.ports.first().and_then(|port| port.port).unwrap_or(0);
            format!("{} {port} {}", draft.family.as_str(), ips.join(","))
        };
        drafts.iter().map(word).collect()
    }

    #[test]
    fn each_family_and_each_set_of_ports_is_a_slice() {
        let world =
            endpoints(json!([subset(&["10.0.0.2", "fd00::1", "10.0.0.1"], 80), subset(&["10.0.0.3"], 81)]));
        let plan = plan(&world, Vec::new(), MAX_ENDPOINTS);
        assert_eq!(
            words(&plan.changes.create),
            ["IPv4 80 10.0.0.1,10.0.0.2", "IPv4 81 10.0.0.3", "IPv6 80 fd00::1"]
        );
        let draft = &plan.changes.create[0];
        assert_eq!(draft.annotations, [("note".to_owned(), "n".to_owned())].into());
        assert_eq!((draft.labels["a"].as_str(), draft.labels[SERVICE_NAME].as_str()), ("b", "e"));
    }

    #[test]
    fn correct_slices_are_kept_and_others_are_rewritten() {
        let world = endpoints(json!([subset(&["10.0.0.1"], 80)]));
        let first = plan(&world, Vec::new(), MAX_ENDPOINTS);
        let slices = vec![stored("e-1", &first.changes.create[0])];
        let again = plan(&world, slices.clone(), MAX_ENDPOINTS);
        assert_eq!(again.changes.unchanged.len(), 1);
        let moved = plan(&endpoints(json!([subset(&["10.0.0.2"], 80)])), slices.clone(), MAX_ENDPOINTS);
        assert_eq!(words(&moved.changes.update), ["IPv4 80 10.0.0.2"]);
        let other_port = plan(&endpoints(json!([subset(&["10.0.0.2"], 81)])), slices.clone(), MAX_ENDPOINTS);
        assert_eq!(words(&other_port.changes.update), ["IPv4 81 10.0.0.2"], "rewritten, not replaced");
        let empty = plan(&endpoints(json!([])), slices, MAX_ENDPOINTS);
        assert_eq!(empty.changes.delete.len(), 1);
    }

    #[test]
    fn invalid_and_excess_addresses_are_skipped() {
        let many: Vec<String> =
            (0..MAX_ENDPOINTS + 3).map(|n| format!("10.1.{}.{}", n / 250, n % 250)).collect();
        let mut ips: Vec<&str> = many.iter().map(String::as_str).collect();
        let plan_of = |ips: &[&str]| plan(&endpoints(json!([subset(ips, 80)])), Vec::new(), MAX_ENDPOINTS);
        assert_eq!((plan_of(&ips).invalid, plan_of(&ips).skipped), (0, 3));
        ips.truncate(2);
        ips.push("!");
        assert_eq!((plan_of(&ips).invalid, plan_of(&ips).skipped), (1, 1));
    }
}
