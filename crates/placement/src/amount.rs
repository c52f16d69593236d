//! Resource amounts: requests of pods, capacity of nodes. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use setpoint_quantity::Quantity;

/// Quantities by resource, as in the API.
pub type Resources = BTreeMap<String, Value>;

/// An amount of every resource: CPU in millicores, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    pub pods: i64,
    /// Extended resources. Empty for almost every pod.
    pub extended: BTreeMap<String, i64>,
}

/// A container's requests. Decoded into numbers at once: there are many containers, and a map of strings takes ten
/// times the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub amount: Amount,
    /// Whether CPU is requested, even if it is zero.
    pub names_cpu: bool,
    pub names_memory: bool,
}

impl<'de> Deserialize<'de> for Requests {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Requests;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("quantities by resource")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Requests, A::Error> {
                let mut requests = Requests::default();
                while let Some((name, quantity)) = map.next_entry::<String, Value>()? {
                    requests.names_cpu |= name == "cpu";
                    requests.names_memory |= name == "memory";
                    *requests.amount.entry(&name) = in_units(&name, &quantity);
                }
                Ok(requests)
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

impl Amount {
    pub fn of(resources: &Resources) -> Self {
        let mut amount = Self::default();
        for (name, quantity) in resources {
            *amount.entry(name) = in_units(name, quantity);
        }
        amount
    }

    fn entry(&mut self, name: &str) -> &mut i64 {
        match name {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            "ephemeral-storage" => &mut self.ephemeral_storage,
            "pods" => &mut self.pods,
            _ => self.extended.entry(name.to_owned()).or_default(),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.combine(other, |mine, theirs| mine.saturating_add(theirs));
    }

    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, |mine, theirs| mine.saturating_sub(theirs));
    }

    /// Raises each resource to the larger of both.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    /// Whether it has any of the wanted resources.
    pub fn has_any_of(&self, wanted: &Self) -> bool {
        let extended = |(name, amount): (&String, &i64)| {
            *amount > 0 && self.extended.get(name).is_some_and(|mine| *mine > 0)
        };
        self.cpu > 0 && wanted.cpu > 0
            || self.memory > 0 && wanted.memory > 0
            || self.ephemeral_storage > 0 && wanted.ephemeral_storage > 0
            || wanted.extended.iter().any(extended)
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.cpu = with(self.cpu, other.cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.extended {
            let mine = self.extended.entry(name.clone()).or_default();
            *mine = with(*mine, *amount);
        }
    }
}

/// Converts a quantity. Malformed ones are zero: the API server rejects them.
fn in_units(name: &str, quantity: &Value) -> i64 {
    let Ok(quantity) = Quantity::of(quantity) else { return 0 };
    if name == "cpu" { quantity.milli_value() } else { quantity.value() }
}

/// The pod-level parts of a pod's requests.
#[derive(Clone, Copy, Debug)]
pub struct PodLevel<'a> {
    /// Pod-level requests, which replace the total of the containers: CPU, memory and huge pages.
    pub requests: &'a Requests,
    /// The overhead of its runtime class.
    pub overhead: &'a Amount,
}

impl PodLevel<'_> {
    /// Huge pages are the only extended resources allowed at pod level.
    fn replace(self, total: &mut Amount) {
        let Requests { amount, names_cpu, names_memory } = self.requests;
        if *names_cpu {
            total.cpu = amount.cpu;
        }
        if *names_memory {
            total.memory = amount.memory;
        }
        for (name, pages) in amount.extended.iter().filter(|(name, _)| name.starts_with("hugepages-")) {
            total.extended.insert(name.clone(), *pages);
        }
    }
}

/// Returns a pod's effective requests: the larger of what its containers need together and what any init step needs,
/// with sidecars counted from their start, unless there are pod-level requests.
pub fn demand_of<C>(
    containers: &[C],
    init_containers: &[C],
    whole: PodLevel<'_>,
    is_sidecar: impl Fn(&C) -> bool,
    of: impl Fn(&C) -> Amount,
) -> Amount {
    let mut total = Amount::default();
    for container in containers {
        total.add(&of(container));
    }
    let mut sidecars = Amount::default();
    let mut initialization = Amount::default();
    for container in init_containers {
        let mut step = of(container);
        if is_sidecar(container) {
            sidecars.add(&step);
            initialization.raise_to(&sidecars);
        } else {
            step.add(&sidecars);
            initialization.raise_to(&step);
        }
    }
    total.add(&sidecars);
    total.raise_to(&initialization);
    whole.replace(&mut total);
    total.add(whole.overhead);
    total.pods = 1;
    total
}
