//! Tables: what `kubectl get` prints.

use jiff::Timestamp;
use serde_json::Value;

use crate::json::Json;

/// A column of a kind's table.
#[derive(Clone)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub data_type: &'static str,
    /// `name` for the first column, otherwise usually empty.
    pub format: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    pub priority: i32,
    pub description: &'static str,
    pub cell: Cell,
}

/// Computes a column's cell for an object.
pub type Cell = fn(object: &Value, now: Timestamp) -> Value;

/// The priority of a cell without a column definition.
const NO_DEFINITION: i32 = -1;

/// The API documentation of `metadata.name`.
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
/// The API documentation of `metadata.creationTimestamp`.
const CREATION_TIMESTAMP: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

impl Column {
    pub const fn text(name: &'static str, description: &'static str, cell: Cell) -> Self {
        Self { name, data_type: "string", format: "", priority: 0, description, cell }
    }

    pub const fn integer(name: &'static str, description: &'static str, cell: Cell) -> Self {
        Self { data_type: "integer", ..Self::text(name, description, cell) }
    }

    /// Shows the column only with `-o wide`.
    pub const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// Marks a cell without a column definition, as v1.34 has some.
    pub const fn without_definition(self) -> Self {
        Self { priority: NO_DEFINITION, ..self }
    }

    pub const fn has_definition(&self) -> bool {
        self.priority != NO_DEFINITION
    }

    pub const fn name() -> Self {
        Self { format: "name", ..Self::text("Name", NAME, name) }
    }

    pub const fn age() -> Self {
        Self::text("Age", CREATION_TIMESTAMP, age)
    }

    pub const fn created_at() -> Self {
        Self { data_type: "date", ..Self::text("Created At", CREATION_TIMESTAMP, created_at) }
    }

    /// Returns the columns of kinds without their own.
    pub fn defaults() -> Vec<Self> {
        vec![Self::name(), Self::created_at()]
    }
}

pub fn name(object: &Value, _: Timestamp) -> Value {
    object.at("metadata").text("name").into()
}

pub fn created_at(object: &Value, _: Timestamp) -> Value {
    object.at("metadata").text("creationTimestamp").into()
}

pub fn age(object: &Value, now: Timestamp) -> Value {
    time_since(object.at("metadata").text("creationTimestamp"), now).into()
}

/// Formats the age of a timestamp; `<unknown>` if there is none.
pub fn time_since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => human_duration((now.as_nanosecond() - time.as_nanosecond()) / 1_000_000_000),
        Err(_) => "<unknown>".into(),
    }
}

/// Formats a duration with two to three significant digits.
pub fn human_duration(seconds: i128) -> String {
    // Tolerate a clock that is a second off.
    if seconds < -1 {
        return "<invalid>".into();
    }
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let years = days / 365;
    match seconds {
        ..0 => "0s".into(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

fn two(large: i128, large_unit: &str, small: i128, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

/// Returns the text, or `<none>` if empty.
pub fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// Joins one field of every element with commas.
pub fn joined(list: &[Value], field: &str) -> Value {
    list.iter().map(|element| element.text(field)).collect::<Vec<_>>().join(",").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_two_to_three_digits() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (2 * 365 * 86400, "2y"),
            (3 * 365 * 86400 + 86400, "3y1d"),
            (9 * 365 * 86400 + 86400, "9y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }
}
