//! How StatefulSets and DaemonSets go from one template to the next.

use serde::Deserialize;

/// The strategy of a set; `R` is what its kind lets users set of a rolling update.
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
    /// Whether pods are replaced without being asked to.
    pub(crate) fn is_rolling(&self) -> bool {
        self.r#type == StrategyType::RollingUpdate
    }
}
