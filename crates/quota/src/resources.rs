//! Amounts of named resources, and arithmetic on them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use setpoint_quantity::{Format, Quantity};

/// Amounts by resource name, like `spec.hard` of a quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, Quantity>);

impl Resources {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.get(name)
    }

    pub fn set(&mut self, name: impl Into<String>, amount: Quantity) {
        self.0.insert(name.into(), amount);
    }

    /// Sets a whole number.
    pub fn set_count(&mut self, name: impl Into<String>, count: i64) {
        self.set(name, Quantity::new(count, Format::DecimalSi));
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), amount))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Adds the amounts of another list.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            match self.0.get_mut(name) {
                Some(sum) => sum.add(amount),
                None => self.set(name, *amount),
            }
        }
    }

    /// Subtracts amounts. Results may be negative.
    pub fn minus(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        for (name, amount) in other.iter() {
            rest.0.entry(name.to_owned()).or_insert(Quantity::ZERO).sub(amount);
        }
        rest
    }

    /// Raises amounts to those of another list where they are larger.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if self.get(name).is_none_or(|known| amount > known) {
                self.set(name, *amount);
            }
        }
    }

    /// Returns the amounts of selected resources.
    pub fn only(&self, wanted: impl Fn(&str) -> bool) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(name, _)| wanted(name))
                .map(|(name, amount)| (name.clone(), *amount))
                .collect(),
        )
    }

    /// Returns the resources that exceed their limit. Resources without a limit do not.
    pub fn beyond(&self, limits: &Self) -> BTreeSet<String> {
        let beyond = |(name, limit): (&str, &Quantity)| {
            self.get(name).filter(|amount| *amount > limit).map(|_| name.to_owned())
        };
        limits.iter().filter_map(beyond).collect()
    }
}

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded: Option<BTreeMap<String, Value>> = Deserialize::deserialize(deserializer)?;
        let read = |(name, amount): (String, Value)| {
            let amount = Quantity::of(&amount)
                .map_err(|error| serde::de::Error::custom(format_args!("{name}: {error}")))?;
            Ok((name, amount))
        };
        encoded.unwrap_or_default().into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, amount)| (name, amount.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources(json: Value) -> Resources {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn amounts_are_added_subtracted_and_compared() {
        let mut sum = resources(json!({"cpu": "500m", "pods": 1}));
        sum.add(&resources(json!({"cpu": "1500m", "memory": "1Gi"})));
        assert_eq!(sum, resources(json!({"cpu": "2", "memory": "1Gi", "pods": "1"})));
        assert_eq!(serde_json::to_value(&sum).unwrap(), json!({"cpu": "2", "memory": "1Gi", "pods": "1"}));
        let rest = sum.minus(&resources(json!({"cpu": "3", "services": "1"})));
        assert_eq!(rest, resources(json!({"cpu": "-1", "memory": "1Gi", "pods": "1", "services": "-1"})));
        let limits = resources(json!({"cpu": "1", "pods": "1", "secrets": "0"}));
        assert_eq!(sum.beyond(&limits), ["cpu".to_owned()].into());
    }
}
