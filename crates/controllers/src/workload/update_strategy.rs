//! Update strategies of StatefulSets and DaemonSets.

use serde::Deserialize;

/// The update strategy of a set. `R` has the kind's rolling update parameters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "R: Default + Deserialize<'de>"))]
pub(crate) struct UpdateStrategy<R> {
    pub(crate) r#type: StrategyType,
    pub(crate) rolling_update: Option<R>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum StrategyType {
    #[default]
    RollingUpdate,
    OnDelete,
}

impl<R> UpdateStrategy<R> {
    /// Whether outdated pods are replaced automatically.
    pub(crate) fn is_rolling(&self) -> bool {
        self.r#type == StrategyType::RollingUpdate
    }
}
