//! Encoding details shared by several workload kinds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
pub(crate) use setpoint::null_is_empty;

/// The metadata fields that only views expose.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Annotated {
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The default number of replicas.
pub(crate) fn one() -> i32 {
    1
}

/// The default revision history limit.
pub(crate) fn ten() -> i32 {
    10
}

/// Converts seconds to a duration. Negative numbers become zero.
pub(crate) fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

/// Status fields are omitted if zero.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
