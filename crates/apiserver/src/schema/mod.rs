//! Schemas of objects: types, their fields, and how lists and maps merge.
//!
//! The built-in types come from one table, `facts.txt`, parsed on first use. A [`Schema`] is a type within a table, so
//! a custom resource's schema is a table of its own and all users of schemas ([`decode`], patches, apply, OpenAPI)
//! support both.
//!
//! Invariants:
//! - fields of a struct are sorted by name, so a lookup is a binary search;
//! - once the table is built, types are identified by number, never by string.

pub(crate) mod convert;
pub mod decode;
pub(crate) mod documents;
pub(crate) mod encode;
mod facts;
pub(crate) mod go;
pub(crate) mod number;
pub(crate) mod protobuf;
mod read;
mod registered;
mod scalar;
pub(crate) mod syntax;
#[cfg(test)]
mod tests;
pub(crate) mod untyped;
pub(crate) mod yaml;
mod zero;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use serde_json::Value;

pub use decode::{DecodeFailure, Decoded, FieldValidation, Format, Target};

/// A type within a table. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    table: Arc<Table>,
    root: TypeId,
}

/// The number of a type in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeId(u32);

/// A set of types that refer only to each other.
#[derive(Default)]
pub struct Table {
    types: Vec<Type>,
    by_name: BTreeMap<Box<str>, TypeId>,
    /// `apps/v1/Deployment`, `/v1/Pod`.
    by_kind: BTreeMap<Box<str>, TypeId>,
}

/// A type: its shape and, for a named type, the name in messages.
pub struct Type {
    pub alias: Option<Box<str>>,
    pub shape: Shape,
}

pub enum Shape {
    Struct(Struct),
    Map(Map),
    List(List),
    Scalar(Scalar),
}

/// An object with named fields.
pub struct Struct {
    /// `io.k8s.api.core.v1.Pod`.
    pub name: Box<str>,
    /// Sorted by name.
    pub fields: Box<[Field]>,
    /// Whether apply merges it as a whole.
    pub atomic: bool,
    /// `apps/v1/Deployment` for types that are kinds.
    pub kinds: Box<[Box<str>]>,
    /// Whether undeclared fields of any type are allowed.
    pub open: bool,
    /// The prefixes of the fields' names, in the same order, for a search by integer comparison.
    beginnings: Box<[u64]>,
    /// The ranks of the fields in the encoded object, in field order.
    ranks: Box<[u16]>,
    /// The indexes of the fields that are written even when unset.
    always: Box<[u16]>,
}

pub struct Field {
    pub name: Box<str>,
    pub ty: TypeId,
    pub required: bool,
    /// Whether an explicit zero differs from absence.
    pub pointer: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    /// Whether the store remembers that it was set to an empty value, which clients do not see.
    pub keeps_empty: bool,
    /// Whether apply merges it field by field although its type is atomic.
    pub granular: bool,
    pub patch: PatchRule,
    /// The enum values of the field or its items.
    pub values: Box<[Box<str>]>,
    pub default: Option<Value>,
}

/// How a strategic merge patch treats a field.
#[derive(Default)]
pub struct PatchRule {
    /// Whether a list is merged with the existing one instead of replacing it.
    pub merge: bool,
    /// Whether an object replaces the existing one instead of being merged with it.
    pub replace: bool,
    pub retain_keys: bool,
    /// The key field of items in a merged list of objects.
    pub key: Option<Box<str>>,
}

/// An object with arbitrary keys.
pub struct Map {
    /// The type of the keys, for messages.
    pub key: Box<str>,
    pub value: TypeId,
    pub atomic: bool,
}

pub struct List {
    pub item: TypeId,
    pub kind: ListKind,
    /// Whether the list type is explicit; the default is atomic.
    pub is_marked: bool,
}

/// The list type for server-side apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    Set,
    /// Items are identified by these fields.
    Map(Box<[Box<str>]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Float,
    /// Base64 in JSON.
    Bytes,
    /// RFC 3339 in whole seconds.
    Time,
    /// RFC 3339 in microseconds.
    MicroTime,
    Quantity,
    IntOrString,
    /// Any JSON, unchanged; null when unset.
    Raw,
    /// Any JSON object.
    Fields,
    /// Any JSON.
    Any,
}

static BUILT_IN: LazyLock<Arc<Table>> = LazyLock::new(|| Arc::new(facts::built_in()));

/// The group versions with built-in kinds.
static BUILT_IN_VERSIONS: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let kinds = BUILT_IN.by_kind.keys().filter_map(|kind| kind.rsplit_once('/'));
    kinds.map(|(version, _)| version.strip_prefix('/').unwrap_or(version)).collect()
});

/// Whether a group version is built in: `v1`, `apps/v1`.
pub(crate) fn is_built_in(api_version: &str) -> bool {
    BUILT_IN_VERSIONS.contains(api_version)
}

impl Schema {
    pub fn new(table: Arc<Table>, root: TypeId) -> Self {
        Self { table, root }
    }

    /// Returns a built-in type by name: `io.k8s.api.core.v1.Pod`.
    pub fn built_in(name: &str) -> Option<Self> {
        BUILT_IN.by_name(name).map(|root| Self { table: BUILT_IN.clone(), root })
    }

    /// Returns the built-in type of a kind: `apps`, `v1`, `Deployment`.
    pub fn built_in_kind(group: &str, version: &str, kind: &str) -> Option<Self> {
        BUILT_IN.by_kind(group, version, kind).map(|root| Self { table: BUILT_IN.clone(), root })
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn root(&self) -> TypeId {
        self.root
    }

    /// Returns the root struct; `None` if the root is not a struct.
    pub fn root_struct(&self) -> Option<&Struct> {
        self.table.as_struct(self.root)
    }

    /// Returns the type of one of the root's fields.
    pub fn field(&self, name: &str) -> Option<Self> {
        let ty = self.root_struct()?.field(name)?.ty;
        Some(Self { table: self.table.clone(), root: ty })
    }
}

impl Table {
    /// Returns the table of all built-in types.
    pub fn built_in() -> &'static Arc<Self> {
        &BUILT_IN
    }

    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    pub fn shape(&self, id: TypeId) -> &Shape {
        &self.get(id).shape
    }

    pub fn as_struct(&self, id: TypeId) -> Option<&Struct> {
        match self.shape(id) {
            Shape::Struct(fields) => Some(fields),
            _ => None,
        }
    }

    pub fn by_name(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        self.by_kind.get(format!("{group}/{version}/{kind}").as_str()).copied()
    }

    /// Returns all structs with their names, sorted by name.
    pub fn structs(&self) -> impl Iterator<Item = (&str, &Struct)> {
        self.by_name.iter().filter_map(|(name, id)| Some((&**name, self.as_struct(*id)?)))
    }

    /// Returns the value of an unset field: its default, or the zero of a field that is always present.
    pub fn default_of(&self, field: &Field) -> Option<Value> {
        let is_struct = matches!(self.shape(field.ty), Shape::Struct(_));
        let implied =
            || (!field.pointer && (is_struct || !field.omit_empty)).then(|| self.zero_of(field.ty)).flatten();
        field.default.clone().or_else(implied)
    }

    /// Returns a type's zero value, if it has one in OpenAPI.
    pub fn zero_of(&self, ty: TypeId) -> Option<Value> {
        match self.shape(ty) {
            Shape::Struct(_) => Some(Value::Object(serde_json::Map::new())),
            Shape::Scalar(Scalar::String) => Some("".into()),
            Shape::Scalar(Scalar::Bool) => Some(false.into()),
            Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float) => Some(0.into()),
            _ => None,
        }
    }

    /// Adds a type. Does not look for an equal one.
    pub fn add(&mut self, ty: Type) -> TypeId {
        self.types.push(ty);
        TypeId(u32::try_from(self.types.len() - 1).expect("a table holds some thousands of types"))
    }
}

impl Type {
    /// Creates a struct from fields in any order.
    pub(crate) fn of_fields(name: &str, mut fields: Vec<Field>, atomic: bool, open: bool) -> Self {
        fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let beginnings = fields.iter().map(|field| beginning(&field.name)).collect();
        let count = fields.len();
        let kinds = Box::default();
        let shape = Shape::Struct(Struct {
            name: name.into(),
            fields: fields.into(),
            atomic,
            kinds,
            open,
            beginnings,
            ranks: (0..).take(count).collect(),
            always: Box::default(),
        });
        Self { alias: None, shape }
    }

    pub(crate) fn scalar(scalar: Scalar) -> Self {
        Self { alias: None, shape: Shape::Scalar(scalar) }
    }
}

impl Table {
    /// Adds a type from another table, with all types it refers to. Recursive types cannot be imported.
    pub(crate) fn import(&mut self, from: &Self, id: TypeId) -> TypeId {
        let ty = from.get(id);
        let shape = match &ty.shape {
            Shape::Scalar(scalar) => Shape::Scalar(*scalar),
            Shape::List(list) => {
                let item = self.import(from, list.item);
                Shape::List(List { item, kind: list.kind.clone(), is_marked: list.is_marked })
            }
            Shape::Map(map) => {
                let value = self.import(from, map.value);
                Shape::Map(Map { key: map.key.clone(), value, atomic: map.atomic })
            }
            Shape::Struct(of) => {
                let fields = of.fields.iter().map(|field| self.import_field(from, field)).collect();
                return self.add(Type::of_fields(&of.name, fields, of.atomic, of.open));
            }
        };
        self.add(Type { alias: ty.alias.clone(), shape })
    }

    fn import_field(&mut self, from: &Self, field: &Field) -> Field {
        let patch = PatchRule {
            merge: field.patch.merge,
            replace: field.patch.replace,
            retain_keys: field.patch.retain_keys,
            key: field.patch.key.clone(),
        };
        Field {
            name: field.name.clone(),
            ty: self.import(from, field.ty),
            required: field.required,
            pointer: field.pointer,
            omit_empty: field.omit_empty,
            omit_zero: field.omit_zero,
            keeps_empty: field.keeps_empty,
            granular: field.granular,
            patch,
            values: field.values.clone(),
            default: field.default.clone(),
        }
    }
}

impl Struct {
    /// Returns the rank of a field in the encoded object, and its type. Undeclared fields come last.
    fn ranked(&self, name: &str) -> (u16, Option<TypeId>) {
        match self.index_of(name) {
            Some(index) => (self.ranks[index], Some(self.fields[index].ty)),
            None => (u16::MAX, None),
        }
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.index_of(name).map(|index| &self.fields[index])
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        let wanted = beginning(name);
        let first = self.beginnings.partition_point(|beginning| *beginning < wanted);
        let alike = self.beginnings[first..].iter().take_while(|beginning| **beginning == wanted);
        (first..).zip(alike).map(|(index, _)| index).find(|index| *self.fields[*index].name == *name)
    }
}

/// Returns the first eight bytes of a name as an integer with the same sort order.
fn beginning(name: &str) -> u64 {
    let mut bytes = [0; 8];
    let length = name.len().min(bytes.len());
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    u64::from_be_bytes(bytes)
}
