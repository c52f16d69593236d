//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{CORE, entry};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind};
use crate::strategy::Strategy;
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        columns: vec![
            Column::name(),
            Column::text("Type", TYPE, |secret, _| secret.text("type").into()),
            Column::text("Data", DATA, |secret, _| secret.map("data").map_or(0, serde_json::Map::len).into()),
            Column::age(),
        ],
        field_selectors: vec![FieldSelector { path: "type", value: |secret| secret.text("type").to_owned() }],
        ..entry(&CORE, "Secret", "secrets", Secret)
    }
}

const TYPE: &str = "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";
const DATA: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";

struct Secret;

impl Strategy for Secret {
    fn default(&self, secret: &mut Value) {
        secret.or_text("type", "Opaque");
        merge_string_data(secret);
    }

    fn counts_generations(&self) -> bool {
        false
    }
}

/// `stringData` is for writing only: it goes into `data`, encoded, and wins there.
fn merge_string_data(secret: &mut Value) {
    let Some(Value::Object(strings)) = secret.unset("stringData") else { return };
    if strings.is_empty() {
        return;
    }
    let data = secret.object_mut("data");
    for (key, text) in strings {
        data.set(&key, STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}
