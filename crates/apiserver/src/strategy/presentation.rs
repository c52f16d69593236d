//! How objects of a kind look in tables and messages.

use serde_json::Value;

/// The presentation of a kind; the default is what most kinds have.
#[derive(Clone, Copy)]
pub struct Presentation {
    /// Sorts the rows of a table, lowest first; rows of equal rank, and all rows without this, are sorted by name.
    pub row_rank: Option<fn(&Value) -> i64>,
    /// What a table says about an object beside its cells (`conditions` of the row).
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// Annotations that this version has in place of fields. The metadata by itself, in a table too, goes without them.
    pub field_annotations: &'static [&'static str],
    /// The message for a field that lists and watches cannot select by.
    pub unknown_field: fn(&str) -> String,
}

impl Default for Presentation {
    fn default() -> Self {
        Self {
            row_rank: None,
            row_conditions: |_| Vec::new(),
            field_annotations: &[],
            unknown_field: |field| format!("field label not supported: {field}"),
        }
    }
}
