//! How objects of a kind look in tables and messages.

use serde_json::Value;

/// The presentation of a kind; the default suits most kinds.
#[derive(Clone, Copy)]
pub struct Presentation {
    /// Ranks the rows of a table, lowest first; rows of equal rank, and all rows without this, are sorted by name.
    pub row_order: Option<fn(&Value) -> i64>,
    /// The `conditions` of an object's table row.
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// Annotations that replace fields in this version. They are omitted from partial object metadata, also in tables.
    pub field_annotations: &'static [&'static str],
    /// The error message for an unsupported field selector.
    pub unknown_field: fn(&str) -> String,
}

impl Default for Presentation {
    fn default() -> Self {
        Self {
            row_order: None,
            row_conditions: |_| Vec::new(),
            field_annotations: &[],
            unknown_field: |field| format!("field label not supported: {field}"),
        }
    }
}
