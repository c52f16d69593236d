//! The printer columns of a CRD.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::jsonpath::JsonPath;
use crate::table;

/// A column, whose value a JSONPath finds in an object.
#[derive(Debug)]
pub struct CustomColumn {
    pub name: String,
    pub data_type: String,
    pub format: String,
    pub priority: i32,
    pub description: String,
    path: JsonPath,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct RawColumn {
    name: String,
    #[serde(rename = "type")]
    data_type: String,
    format: String,
    priority: i32,
    description: String,
    json_path: String,
}

/// Returns the columns of a version after the name: its own, or by default the age. An invalid path drops the rest.
pub(super) fn of(version: &Value) -> Vec<CustomColumn> {
    let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": table::Column::created_at().description}]);
    let own = version
        .get("additionalPrinterColumns")
        .filter(|own| own.as_array().is_some_and(|own| !own.is_empty()));
    let columns = own.unwrap_or(&age).as_array().into_iter().flatten();
    columns.map_while(column).collect()
}

fn column(written: &Value) -> Option<CustomColumn> {
    let RawColumn { name, data_type, format, priority, mut description, json_path } =
        RawColumn::deserialize(written).unwrap_or_default();
    let path = JsonPath::parse(&json_path)?;
    if description.is_empty() {
        description = format!("Custom resource definition column (in JSONPath format): {json_path}");
    }
    Some(CustomColumn { name, data_type, format, priority, description, path })
}

impl CustomColumn {
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(found) = self.path.first(object) else { return Value::Null };
        match self.data_type.as_str() {
            "string" => printed(found).into(),
            "integer" => match found.as_i64().or_else(|| found.as_f64().map(|number| number as i64)) {
                Some(number) => number.into(),
                None => Value::Null,
            },
            "number" => found.as_f64().map_or(Value::Null, number),
            "boolean" => found.as_bool().map_or(Value::Null, Value::from),
            "date" => match found.as_str() {
                Some("") => "<unknown>".into(),
                Some(time) if time.parse::<Timestamp>().is_ok() => table::time_since(time, now).into(),
                Some(_) => "<invalid>".into(),
                None => Value::Null,
            },
            _ => Value::Null,
        }
    }
}

/// Encodes a number without a fraction as an integer.
fn number(number: f64) -> Value {
    match number as i64 {
        whole if whole as f64 == number => whole.into(),
        _ => number.into(),
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<no value>".into(),
        other => other.to_string(),
    }
}
