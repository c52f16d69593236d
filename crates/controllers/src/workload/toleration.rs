//! Taints of nodes, and the tolerations of pods. Pure.

use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Taint {
    pub(crate) key: Box<str>,
    pub(crate) value: Box<str>,
    pub(crate) effect: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Toleration {
    pub(crate) key: Box<str>,
    pub(crate) operator: Box<str>,
    pub(crate) value: Box<str>,
    pub(crate) effect: Box<str>,
    pub(crate) toleration_seconds: Option<i64>,
}

impl Toleration {
    /// An empty key fits every taint, an empty effect every effect.
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
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
