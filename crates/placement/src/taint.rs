//! Node taints and tolerations.

use serde::Deserialize;

/// Keeps new pods away.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Keeps new pods away and evicts existing ones.
pub const NO_EXECUTE: &str = "NoExecute";
/// Only discourages.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: Box<str>,
    pub value: Box<str>,
    pub effect: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    pub key: Box<str>,
    pub operator: Box<str>,
    pub value: Box<str>,
    pub effect: Box<str>,
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Whether it tolerates a taint. An empty key matches every taint, an empty effect every effect.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match &*self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        effect && key && value
    }
}

/// Returns the first taint with one of these effects that is not tolerated.
pub fn untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    effects: &[&str],
) -> Option<&'a Taint> {
    let counts = |taint: &&Taint| effects.contains(&&*taint.effect);
    taints.iter().filter(counts).find(|taint| !tolerations.iter().any(|one| one.tolerates(taint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_matches_by_key_value_and_effect() {
        let taint = Taint { key: "k".into(), value: "v".into(), effect: NO_SCHEDULE.into() };
        let check = |key: &str, operator: &str, value: &str, effect: &str, expected: bool| {
            let toleration = Toleration {
                key: key.into(),
                operator: operator.into(),
                value: value.into(),
                effect: effect.into(),
                toleration_seconds: None,
            };
            assert_eq!(toleration.tolerates(&taint), expected, "{toleration:?}");
        };
        check("k", "Equal", "v", "NoSchedule", true);
        check("k", "", "v", "", true);
        check("k", "Exists", "", "", true);
        check("", "Exists", "", "", true);
        check("k", "Equal", "other", "", false);
        check("k", "Exists", "", "NoExecute", false);
        check("other", "Exists", "", "", false);
    }
}
