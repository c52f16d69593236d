//! Bits of how workloads are encoded that more than one kind shares.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The part of the metadata that only views show.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Annotated {
    pub(crate) annotations: BTreeMap<String, String>,
}

/// How many replicas are wanted where nobody says.
pub(crate) fn one() -> i32 {
    1
}

/// Statuses leave out what is zero.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
