//! Taints and the pods that tolerate them. Pure.

use crate::view::{Taint, Toleration};

pub(crate) const NO_SCHEDULE: &str = "NoSchedule";
pub(crate) const NO_EXECUTE: &str = "NoExecute";
pub(crate) const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

impl Toleration {
    /// An empty key with `Exists` tolerates every taint, an empty effect every effect.
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match self.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => self.value == taint.value,
            _ => false,
        };
        effect && key && value
    }
}

/// The first taint that keeps pods with these tolerations away.
pub(crate) fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    let hard = |taint: &&Taint| taint.effect == NO_SCHEDULE || taint.effect == NO_EXECUTE;
    taints.iter().filter(hard).find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

/// How many of the taints only discourage, and are not tolerated.
pub(crate) fn discouraging(taints: &[Taint], tolerations: &[Toleration]) -> usize {
    let soft = |taint: &&Taint| taint.effect == PREFER_NO_SCHEDULE;
    let relevant = |t: &&Toleration| t.effect.is_empty() || t.effect == PREFER_NO_SCHEDULE;
    let tolerated = |taint: &&Taint| tolerations.iter().filter(relevant).any(|t| t.tolerates(taint));
    taints.iter().filter(soft).filter(|taint| !tolerated(taint)).count()
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
