//! Strategic merge patches: merge patches that know which lists merge, and by which key.
//!
//! Directives in a patch change how it merges:
//! - `$patch: replace` and `$patch: delete` on an object, and on items of a merged list of objects;
//! - `$retainKeys`: the fields of an object to keep;
//! - `$deleteFromPrimitiveList/FIELD`: items to remove from a list of scalars;
//! - `$setElementOrder/FIELD`: the order of a merged list.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::json::Json;
use crate::schema::{PatchRule, Schema, Shape, Table, TypeId};

use super::PatchError;
use super::go_print::{GoPrint, type_name};
use super::order::{self, ItemIndexes, Keyed};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const BAD_PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const BAD_ORDER: &str = "invalid patch format of setElementOrder list";
const LISTS_OF_LISTS: &str = "lists of lists are not supported";

type Object = Map<String, Value>;
type Result<T> = std::result::Result<T, PatchError>;

/// Applies `patch` to `document`, an object of the schema's root type.
pub fn apply(schema: &Schema, document: Value, patch: Value) -> Result<Value> {
    let Value::Object(patch) = patch else { return Ok(document) };
    let Value::Object(document) = document else { return Ok(Value::Object(patch)) };
    let level = Level { table: schema.table(), ty: schema.root() };
    level.merge(document, patch).map(Value::Object)
}

/// The type of an object being merged.
#[derive(Clone, Copy)]
struct Level<'t> {
    table: &'t Table,
    ty: TypeId,
}

impl<'t> Level<'t> {
    fn merge(self, mut original: Object, mut patch: Object) -> Result<Object> {
        if let Some(directive) = patch.get(DIRECTIVE) {
            return match directive.as_str() {
                Some("replace") => {
                    patch.remove(DIRECTIVE);
                    Ok(patch)
                }
                Some("delete") => Ok(Object::new()),
                _ => Err(unknown_directive(directive, &patch)),
            };
        }
        retain_keys(&mut original, &mut patch)?;
        self.set_orders(&mut original, &mut patch)?;
        for (key, value) in patch {
            match key.strip_prefix(DELETE_FROM) {
                Some(rest) => {
                    let field = rest.strip_prefix('/').ok_or_else(|| bad_request(BAD_PRIMITIVE_LIST))?;
                    self.delete_from(&mut original, field, value)?;
                }
                None => self.merge_field(&mut original, key, value)?,
            }
        }
        Ok(original)
    }

    fn merge_field(self, original: &mut Object, key: String, patch: Value) -> Result<()> {
        if patch.is_null() {
            original.remove(&key);
            return Ok(());
        }
        match (original.get_mut(&key), patch) {
            (Some(Value::Object(current)), Value::Object(patch)) => {
                let (level, rule) = self.field(&key)?;
                let merged = match rule.replace {
                    true => patch,
                    false => level.merge(std::mem::take(current), patch)?,
                };
                original.insert(key, Value::Object(merged));
            }
            (Some(Value::Array(current)), Value::Array(patch)) => {
                let (level, rule) = self.items_of(&key)?;
                if rule.merge {
                    let current = std::mem::take(current);
                    original.insert(key, Value::Array(level.merge_list(current, patch, rule)?));
                } else {
                    original.insert(key, Value::Array(patch));
                }
            }
            // The current value is of another type, or absent.
            (_, patch) => put(original, key, patch),
        }
        Ok(())
    }

    /// Removes items from a list of scalars, if it exists.
    fn delete_from(self, original: &mut Object, field: &str, gone: Value) -> Result<()> {
        let (Some(Value::Array(current)), Value::Array(gone)) = (original.get_mut(field), gone) else {
            return Ok(());
        };
        self.items_of(field)?;
        if current.is_empty() && gone.is_empty() {
            return Ok(());
        }
        if element_kind(&[current, &gone])? == Element::Object {
            return Err(internal(format!("cannot merge lists without merge key for {field}")));
        }
        let gone = ItemIndexes::of(gone.iter());
        current.retain(|item| !gone.has(item));
        Ok(())
    }

    fn merge_list(self, original: Vec<Value>, patch: Vec<Value>, rule: &PatchRule) -> Result<Vec<Value>> {
        if original.is_empty() && patch.is_empty() {
            return Ok(original);
        }
        if element_kind(&[&original, &patch])? == Element::Scalar {
            return Ok(merge_scalars(original, patch));
        }
        let Some(key) = rule.key.as_deref() else {
            return Err(internal("cannot merge lists without merge key for struct".to_owned()));
        };
        let (original, patch) = special_items(original, patch, key)?;
        let server_order = order::keys(&original, key);
        let patch_order = order::keys(&patch, key);
        let merged = self.merge_items(original, patch, key)?;
        Ok(order::sort(Keyed::of(merged, key)?, &patch_order, &server_order))
    }

    /// Merges items with the same key, appends the others.
    fn merge_items(self, mut original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<Vec<Value>> {
        let mut places = ItemIndexes::of(original.iter().map(|item| item.at(key)));
        for item in patch {
            let Value::Object(item) = item else { continue };
            let id = item.get(key).ok_or_else(|| no_merge_key(&item, key))?;
            // An item without the key matches none.
            match places.find(id).filter(|_| !id.is_null()) {
                Some(index) => {
                    let Value::Object(current) = original[index].take() else { continue };
                    original[index] = Value::Object(self.merge(current, item)?);
                }
                None => {
                    places.add(id, original.len());
                    original.push(Value::Object(item));
                }
            }
        }
        Ok(original)
    }

    /// Merges the lists whose order the patch sets, and removes them and their directives from the patch.
    fn set_orders(self, original: &mut Object, patch: &mut Object) -> Result<()> {
        let directives: Vec<String> =
            patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
        for directive in directives {
            let order = match patch.remove(&directive) {
                Some(Value::Array(order)) => order,
                other => return Err(bad_type("[]interface {}", &other.unwrap_or_default())),
            };
            let field = directive.strip_prefix(SET_ORDER).and_then(|rest| rest.strip_prefix('/'));
            let field = field.ok_or_else(|| bad_request(BAD_ORDER))?;
            if let Some(list) = self.ordered(original.get(field), patch.get(field), &order, field)? {
                original.insert(field.to_owned(), Value::Array(list));
                patch.remove(field);
            }
        }
        Ok(())
    }

    /// Merges a field's list and sorts it by `order`, if there is a list at all.
    fn ordered(
        self,
        original: Option<&Value>,
        patch: Option<&Value>,
        order: &[Value],
        field: &str,
    ) -> Result<Option<Vec<Value>>> {
        let original = original.map(as_list).transpose()?;
        let patch = patch.map(as_list).transpose()?;
        let (level, rule) = self.items_of(field)?;
        let key = rule.key.as_deref();
        check_order(patch.map_or(&[], Vec::as_slice), order, key)?;
        let merged = match (original, patch) {
            (None, None) => return Ok(None),
            (Some(original), None) => original.clone(),
            (None, Some(patch)) => without_directives(patch),
            (Some(original), Some(patch)) if rule.merge => {
                level.merge_list(original.clone(), patch.clone(), rule)?
            }
            (Some(_), Some(patch)) => patch.clone(),
        };
        let original = original.map_or(&[][..], Vec::as_slice);
        element_kind(&[original, patch.map_or(&[], Vec::as_slice)])?;
        let settled = match key {
            Some(key) => {
                order::sort(Keyed::of(merged, key)?, &order::keys(order, key), &order::keys(original, key))
            }
            None => order::sort(Keyed::scalars(merged), order, original),
        };
        Ok(Some(settled))
    }

    /// Returns the type of a field that holds an object.
    fn field(self, key: &str) -> Result<(Self, &'t PatchRule)> {
        match self.table.shape(self.ty) {
            Shape::Struct(fields) => {
                let field = fields.field(key).ok_or_else(|| {
                    let name = fields.name.rsplit('.').next().unwrap_or_default();
                    internal(format!("unable to find api field in struct {name} for the json field {key:?}"))
                })?;
                Ok((Self { table: self.table, ty: field.ty }, &field.patch))
            }
            other => Err(internal(format!(
                "merging an object in json but data type is not struct, instead is: {}",
                reflect_kind(other)
            ))),
        }
    }

    /// Returns the item type of a field that holds a list.
    fn items_of(self, key: &str) -> Result<(Self, &'t PatchRule)> {
        let (field, rule) = self.field(key)?;
        match self.table.shape(field.ty) {
            Shape::List(list) => Ok((Self { table: self.table, ty: list.item }, rule)),
            _ => Err(internal("expected slice or array type, but got: struct".to_owned())),
        }
    }
}

/// Sets a field, without the patch's directives and nulls.
fn put(original: &mut Object, key: String, mut patch: Value) {
    discard_nulls(&mut patch);
    match without_directive(patch) {
        Some(value) => _ = original.insert(key, value),
        None => _ = original.remove(&key),
    }
}

fn discard_nulls(patch: &mut Value) {
    match patch {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Removes objects with a directive from a value; `None` if it is one itself.
fn without_directive(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(key, value)| Some((key, without_directive(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directive).collect())),
        other => Some(other),
    }
}

fn without_directives(items: &[Value]) -> Vec<Value> {
    items.iter().cloned().filter_map(without_directive).collect()
}

/// Drops the fields that the patch does not list as retained. All fields in the patch must be listed.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<()> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(bad_request(BAD_RETAIN_KEYS)) };
    let retained: BTreeSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let stays = |key: &str| retained.contains(key);
    let is_directive = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !stays(key)) {
        return Err(bad_request(BAD_RETAIN_KEYS));
    }
    original.retain(|key, _| stays(key));
    Ok(())
}

fn merge_scalars(original: Vec<Value>, patch: Vec<Value>) -> Vec<Value> {
    let mut seen = ItemIndexes::of(std::iter::empty());
    let both = original.iter().chain(&patch).enumerate();
    let merged = both.filter(|(at, item)| seen.add(item, *at)).map(|(_, item)| item.clone()).collect();
    order::sort(Keyed::scalars(merged), &patch, &original)
}

/// Applies the directives among a patch's items, and returns what remains of both lists.
fn special_items(mut original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>)> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    let mut deleted = ItemIndexes::of(std::iter::empty());
    for item in patch {
        let Some((object, directive)) = item.as_object().and_then(|o| Some((o, o.get(DIRECTIVE)?))) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let id = object.get(key).ok_or_else(|| no_merge_key(object, key))?;
                deleted.add(id, 0);
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(internal("merging lists cannot yet be specified in the patch".to_owned()));
            }
            _ => return Err(unknown_directive(directive, object)),
        }
    }
    original.retain(|item| item.get(key).is_none_or(|id| !deleted.has(id)));
    Ok(if replace { (plain, Vec::new()) } else { (original, plain) })
}

/// Checks that the items of a patch follow the order that it sets, and are part of it.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let is_deletion = |item: &Value| item.get(DIRECTIVE).is_some();
    let id = |item: &Value| -> Result<Value> {
        let Some(key) = key else { return Ok(item.clone()) };
        let object = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))?;
        object.get(key).cloned().ok_or_else(|| no_merge_key(object, key))
    };
    let mut places = order.iter();
    for item in patch.iter().filter(|item| key.is_none() || !is_deletion(item)) {
        let wanted = id(item)?;
        let mut found = false;
        for place in places.by_ref() {
            if id(place)? == wanted {
                found = true;
                break;
            }
        }
        if !found {
            let list = |items: &[Value]| GoPrint(&Value::Array(items.to_vec())).to_string();
            return Err(internal(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                list(patch),
                list(order)
            )));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    Object,
    Scalar,
}

/// Returns the type of all items in some lists. There must be at least one, and all must have the same type.
fn element_kind(lists: &[&[Value]]) -> Result<Element> {
    let mut items = lists.iter().copied().flatten();
    let first = items.next().ok_or_else(|| internal("no elements in any of the given slices".to_owned()))?;
    if first.is_array() {
        return Err(PatchError::Unprocessable(LISTS_OF_LISTS.to_owned()));
    }
    if items.any(|item| type_name(item) != type_name(first)) {
        let shown: Vec<Value> = lists.iter().map(|list| Value::Array(list.to_vec())).collect();
        return Err(internal(format!(
            "list element types are not identical: {}",
            GoPrint(&Value::Array(shown))
        )));
    }
    Ok(if first.is_object() { Element::Object } else { Element::Scalar })
}

fn as_list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().ok_or_else(|| bad_type("[]interface {}", value))
}

fn reflect_kind(shape: &Shape) -> &'static str {
    match shape {
        Shape::Map(_) => "map",
        Shape::List(_) => "slice",
        Shape::Struct(_) => "struct",
        Shape::Scalar(_) => "string",
    }
}

pub(super) fn no_merge_key(object: &Object, key: &str) -> PatchError {
    let shown = Value::Object(object.clone());
    internal(format!("map: {} does not contain declared merge key: {key}", GoPrint(&shown)))
}

pub(super) fn bad_type(expected: &str, actual: &Value) -> PatchError {
    internal(format!("expected a {expected}, but received a {}", type_name(actual)))
}

fn unknown_directive(directive: &Value, object: &Object) -> PatchError {
    let shown = Value::Object(object.clone());
    internal(format!("unknown patch type: {} in map: {}", GoPrint(directive), GoPrint(&shown)))
}

fn bad_request(message: &str) -> PatchError {
    PatchError::BadRequest(message.to_owned())
}

fn internal(message: String) -> PatchError {
    PatchError::Internal(message)
}
