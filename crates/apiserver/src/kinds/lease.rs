//! Leases.

use serde_json::Value;

use super::{COORDINATION, entry};
use crate::json::{Json, JsonMut};
use crate::kind::Kind;
use crate::strategy::Strategy;
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        columns: vec![
            Column::name(),
            Column::text("Holder", HOLDER, |lease, _| lease.at("spec").text("holderIdentity").into()),
            Column::age(),
        ],
        ..entry(&COORDINATION, "Lease", "leases", Lease)
    }
}

const HOLDER: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";

struct Lease;

impl Strategy for Lease {
    fn prepare_for_create(&self, lease: &mut Value) {
        drop_coordination(lease, &Value::Null);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        drop_coordination(new, old);
    }

    fn counts_generations(&self) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}

/// Coordinated leader election is off: its fields stay only where they already are.
fn drop_coordination(lease: &mut Value, old: &Value) {
    let Some(spec) = lease.at_mut("spec") else { return };
    for field in ["strategy", "preferredHolder"] {
        if !old.at("spec").has(field) {
            spec.unset(field);
        }
    }
}
