//! Converts objects to partial metadata and tables.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::json::{Json, JsonMut};
use crate::negotiate::Output;
use crate::query::Query;
use crate::registry::Served;
use crate::status::Status;
use crate::table::Column;

/// How much of each object a row includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// The options of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableOptions {
    pub include: IncludeObject,
    /// Whether the columns are already known: later events of a watch.
    pub without_columns: bool,
}

impl TableOptions {
    pub(crate) fn parse(query: &Query<'_>) -> Result<Self, Status> {
        let include = match query.get("includeObject").unwrap_or("") {
            "" | "Metadata" => IncludeObject::Metadata,
            "None" => IncludeObject::None,
            "Object" => IncludeObject::Object,
            other => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                     'Metadata', 'Object', 'None', or empty"
                )));
            }
        };
        Ok(Self { include, without_columns: false })
    }
}

/// Builds the metadata of a list.
pub(crate) fn list_metadata(revision: &str, continue_token: Option<&str>, remaining: Option<usize>) -> Value {
    let mut metadata = Map::new();
    if !revision.is_empty() {
        metadata.insert("resourceVersion".into(), revision.into());
    }
    if let Some(token) = continue_token.filter(|token| !token.is_empty()) {
        metadata.insert("continue".into(), token.into());
    }
    if let Some(remaining) = remaining.filter(|remaining| *remaining > 0) {
        metadata.insert("remainingItemCount".into(), remaining.into());
    }
    Value::Object(metadata)
}

/// Builds a list of objects, which omit their kind. Custom resources do not, and their lists always have a token.
pub(crate) fn list(served: &Served, mut metadata: Value, mut objects: Vec<Value>) -> Value {
    match served.kind.custom {
        Some(_) => metadata.or_insert("continue", ""),
        None => objects = objects.into_iter().map(|object| item(served, object)).collect(),
    }
    json!({
        "kind": served.kind.list_kind(),
        "apiVersion": served.kind.api_version(),
        "metadata": metadata,
        "items": objects,
    })
}

/// Converts an object to a list item.
pub(crate) fn item(served: &Served, mut object: Value) -> Value {
    if served.kind.custom.is_none() {
        object.unset("kind");
        object.unset("apiVersion");
    }
    object
}

/// Reduces an object to its metadata.
pub(crate) fn partial(served: &Served, output: Output, mut object: Value) -> Value {
    let mut metadata = object.unset("metadata").unwrap_or_else(|| json!({}));
    let in_place_of_fields = served.kind.presentation.field_annotations;
    if !in_place_of_fields.is_empty() && metadata.has("annotations") {
        let annotations = metadata.object_mut("annotations");
        in_place_of_fields.iter().for_each(|name| _ = annotations.unset(name));
        if metadata.map("annotations").is_some_and(Map::is_empty) {
            metadata.unset("annotations");
        }
    }
    json!({ "kind": "PartialObjectMetadata", "apiVersion": output.meta_version(), "metadata": metadata })
}

/// Builds a list of metadata.
pub(crate) fn partial_list(served: &Served, output: Output, list: Value, objects: Vec<Value>) -> Value {
    // Unlike in other lists, items have their kind.
    let items: Vec<Value> = objects.into_iter().map(|object| partial(served, output, object)).collect();
    let items = if items.is_empty() { Value::Null } else { items.into() };
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": output.meta_version(),
        "metadata": list,
        "items": items,
    })
}

/// Builds a table of objects.
pub(crate) fn table(
    served: &Served,
    output: Output,
    options: &TableOptions,
    list: Value,
    objects: Vec<Value>,
    now: Timestamp,
) -> Value {
    let mut objects = objects;
    if let Some(rank) = served.kind.presentation.row_order {
        objects.sort_by_key(rank);
    }
    let rows: Vec<Value> =
        objects.into_iter().map(|object| row(served, output, options, object, now)).collect();
    table_of(output, options, list, columns(served), rows)
}

/// Builds a table with one row for an object's scale. For custom resources it has the columns of their kind.
pub(crate) fn scale_table(
    served: &Served,
    output: Output,
    options: &TableOptions,
    scale: Value,
    now: Timestamp,
) -> Value {
    let list = list_metadata(crate::metadata::of(&scale).text("resourceVersion"), None, None);
    if served.kind.custom.is_some() {
        return table(served, output, options, list, vec![scale], now);
    }
    let cells = SCALE_COLUMNS.iter().map(|column| (column.cell)(&scale, now)).collect();
    let columns = SCALE_COLUMNS.iter().map(definition).collect();
    table_of(output, options, list, columns, vec![row_of(served, output, options, cells, Vec::new(), scale)])
}

static SCALE_COLUMNS: [Column; 4] = [
    Column { format: "", ..Column::name() },
    Column::integer(
        "Desired",
        "replicas is the desired number of instances for the scaled object.",
        |scale, _| scale.at("spec").count("replicas").into(),
    ),
    Column::integer(
        "Available",
        "replicas is the actual number of observed instances of the scaled object.",
        |scale, _| scale.at("status").count("replicas").into(),
    ),
    Column::age(),
];

fn table_of(output: Output, options: &TableOptions, list: Value, columns: Value, rows: Vec<Value>) -> Value {
    let columns = if options.without_columns { Value::Null } else { columns };
    json!({
        "kind": "Table",
        "apiVersion": output.meta_version(),
        "metadata": list,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn columns(served: &Served) -> Value {
    let definitions = served.kind.columns.iter().filter(|column| column.has_definition()).map(definition);
    let custom = served.kind.custom.iter().flat_map(|custom| &custom.columns).map(|column| {
        json!({
            "name": column.name,
            "type": column.data_type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        })
    });
    definitions.chain(custom).collect()
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.data_type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

/// Builds an object's row.
pub(crate) fn row(
    served: &Served,
    output: Output,
    options: &TableOptions,
    object: Value,
    now: Timestamp,
) -> Value {
    let custom = served.kind.custom.iter().flat_map(|custom| &custom.columns);
    let cells = served.kind.columns.iter().map(|column| (column.cell)(&object, now));
    let cells: Vec<Value> = cells.chain(custom.map(|column| column.cell(&object, now))).collect();
    let conditions = (served.kind.presentation.row_conditions)(&object);
    row_of(served, output, options, cells, conditions, object)
}

fn row_of(
    served: &Served,
    output: Output,
    options: &TableOptions,
    cells: Vec<Value>,
    conditions: Vec<Value>,
    object: Value,
) -> Value {
    let mut row = json!({ "cells": cells });
    if !conditions.is_empty() {
        row.set("conditions", conditions);
    }
    let shown = match options.include {
        IncludeObject::None => None,
        IncludeObject::Metadata => Some(partial(served, output, object)),
        IncludeObject::Object => Some(object),
    };
    row.set("object", shown.unwrap_or(Value::Null));
    row
}

/// Builds an empty object with a revision: the body of a bookmark.
pub(crate) fn bookmark(served: &Served, revision: u64, ends_initial_events: bool) -> Value {
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if ends_initial_events {
        metadata.set("annotations", json!({ "k8s.io/initial-events-end": "true" }));
    }
    let mut object = json!({ "metadata": metadata });
    served.name_kind(&mut object);
    object
}
