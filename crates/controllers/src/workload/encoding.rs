//! Bits of how workloads are encoded that more than one kind shares.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
pub(crate) use setpoint::null_is_empty;

/// The part of the metadata that only views show.
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

/// The default number of old revisions that are kept.
pub(crate) fn ten() -> i32 {
    10
}

/// A number of seconds; a negative one is none.
pub(crate) fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

/// Statuses leave out what is zero.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
