//! Amounts of resources: what a pod asks for, what a node has. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use setpoint_quantity::Quantity;

/// Quantities by resource, as the API has them.
pub type Resources = BTreeMap<String, Value>;

/// An amount of every resource: cpu in thousandths of a core, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    pub pods: i64,
    /// Resources beyond the built-in ones; empty for almost every pod.
    pub extended: BTreeMap<String, i64>,
}

/// What a container asks for. Read at once into what it amounts to: there are many containers, and a map of texts
/// takes ten times the room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub amount: Amount,
    /// Whether cpu is asked for, and be it none.
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

    fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
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

/// A quantity that cannot be read counts as nothing: the API server has refused it long before.
fn in_units(name: &str, quantity: &Value) -> i64 {
    let Ok(quantity) = Quantity::of(quantity) else { return 0 };
    if name == "cpu" { quantity.milli_value() } else { quantity.value() }
}

/// What a pod asks of its node: the larger of what its containers need together and what any step of
/// its initialization needs, sidecars counted from their start, plus the overhead of its runtime class.
pub fn demand_of<C>(
    containers: &[C],
    init_containers: &[C],
    overhead: &Amount,
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
    total.add(overhead);
    total.pods = 1;
    total
}
