//! Tables: what `kubectl get` prints.

use jiff::Timestamp;
use serde_json::Value;

/// One column of a kind's table.
#[derive(Clone)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub data_type: &'static str,
    /// `name` for the first column, otherwise mostly empty.
    pub format: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    pub priority: i32,
    pub description: &'static str,
    pub cell: fn(object: &Value, now: Timestamp) -> Value,
}
