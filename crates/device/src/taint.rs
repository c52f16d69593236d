//! Device taints and tolerations. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
    pub time_added: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Taint {
    /// Whether pods that use the device are evicted (`NoExecute`).
    pub fn evicts(&self) -> bool {
        self.effect == "NoExecute"
    }
}

impl Toleration {
    /// Whether it tolerates a taint. Unset fields match everything.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let same_effect = self.effect.is_empty() || self.effect == taint.effect;
        let same_key = self.key.is_empty() || self.key == taint.key;
        let same_value = match self.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => self.value == taint.value,
            _ => false,
        };
        same_effect && same_key && same_value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(toleration: Value, expected: bool) {
        let taint =
            Taint { key: "k".into(), value: "v".into(), effect: "NoSchedule".into(), time_added: None };
        let read: Toleration = serde_json::from_value(toleration.clone()).expect("a toleration");
        assert_eq!(read.tolerates(&taint), expected, "{toleration}");
        assert_eq!(serde_json::to_value(&read).expect("JSON"), toleration, "written as it was read");
    }

    #[test]
    fn unset_fields_of_a_toleration_match_everything() {
        check(json!({"operator": "Exists"}), true);
        check(json!({"key": "k", "operator": "Exists"}), true);
        check(
            json!({"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}),
            true,
        );
        check(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false);
        check(json!({"key": "l", "operator": "Exists"}), false);
        check(json!({"key": "k", "operator": "Equal", "value": "v"}), true);
        check(json!({"key": "k", "operator": "Equal", "value": "w"}), false);
        check(json!({"key": "k"}), false);
        check(json!({"key": "k", "operator": "Else"}), false);
    }
}
