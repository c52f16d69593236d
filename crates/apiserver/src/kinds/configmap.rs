//! ConfigMaps.

use serde_json::Value;

use super::{CORE, entry};
use crate::json::Json;
use crate::kind::Kind;
use crate::strategy::Strategy;
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["cm".into()],
        columns: vec![
            Column::name(),
            Column::text("Data", DATA, |object, _| size(object).into()),
            Column::age(),
        ],
        ..entry(&CORE, "ConfigMap", "configmaps", ConfigMap)
    }
}

const DATA: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.";

fn size(object: &Value) -> usize {
    ["data", "binaryData"].iter().filter_map(|field| object.map(field)).map(serde_json::Map::len).sum()
}

struct ConfigMap;

impl Strategy for ConfigMap {
    fn counts_generations(&self) -> bool {
        false
    }
}
