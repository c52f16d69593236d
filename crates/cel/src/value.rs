//! The values of expressions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value as Json;
use setpoint_quantity::Quantity;

use super::eval::EvalError;
use super::libraries::semver::Semver;
use super::libraries::url::Url;
use super::message::{self, Message};
use super::types::{Declared, Type};

/// A value. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(Arc<List>),
    Map(Arc<BTreeMap<Key, Val>>),
    /// A map that returns an empty map for missing keys.
    Domains(Arc<BTreeMap<Key, Val>>),
    /// A map whose keys are also found by their escaped names: `a.b` by `a__dot__b`.
    Escaped(Arc<BTreeMap<Key, Val>>),
    Type(Arc<str>),
    Optional(Option<Arc<Val>>),
    Url(Arc<Url>),
    Quantity(Box<Quantity>),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Semver(Arc<Semver>),
    /// A named format.
    Format(&'static str),
    /// A value of a named type.
    Message(Arc<Message>),
    /// A value implemented outside of this crate.
    Foreign(Arc<dyn Foreign>),
}

/// A value implemented outside of this crate, such as an authorizer or a decision.
pub trait Foreign: fmt::Debug + Send + Sync {
    /// Returns the type name, for example `kubernetes.authorization.Authorizer`.
    fn type_name(&self) -> &str;

    /// Calls a method.
    fn call(&self, function: &str, args: &[Val]) -> Result<Val, String> {
        let _ = (function, args);
        Err("no such overload".into())
    }

    /// Returns the value of a field. `None` if there is no such field.
    fn field(&self, name: &str) -> Option<Result<Val, EvalError>> {
        let _ = name;
        None
    }
}

/// A list, and how its items are identified.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub items: Vec<Val>,
    pub identity: Identity,
}

/// How the items of a list are identified.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Identity {
    /// By position: an ordinary list.
    #[default]
    Position,
    /// By value: a set.
    Whole,
    /// By some of their fields.
    Keys(Arc<[String]>),
}

/// A map key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

impl Val {
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    pub fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(List { items, identity: Identity::Position }))
    }

    pub fn map(entries: impl IntoIterator<Item = (Key, Self)>) -> Self {
        Self::Map(Arc::new(entries.into_iter().collect()))
    }

    /// Returns the value at a key. `None` if this is not a map, or the key is missing.
    pub(super) fn at_key(&self, key: &Key) -> Option<Self> {
        match self {
            Self::Map(entries) => entries.get(key).cloned(),
            Self::Domains(entries) => Some(entries.get(key).cloned().unwrap_or_else(|| Self::map([]))),
            Self::Escaped(entries) => match key {
                Key::String(name) => {
                    let name = super::escape::unescape(name).map_or(name.clone(), Into::into);
                    entries.get(&Key::String(name)).cloned()
                }
                key => entries.get(key).cloned(),
            },
            _ => None,
        }
    }

    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub const NONE: Self = Self::Optional(None);

    /// Converts JSON without type information.
    pub fn of_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(on) => Self::Bool(*on),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => Self::Int(number),
                (None, number) => Self::Double(number.unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::text(text.as_str()),
            Json::Array(items) => Self::list(items.iter().map(Self::of_json).collect()),
            Json::Object(fields) => Self::map(
                fields.iter().map(|(name, value)| (Key::String(name.as_str().into()), Self::of_json(value))),
            ),
        }
    }

    /// Converts JSON as Go decodes it without a type: every number is a double, and fields are also found by their
    /// escaped names.
    pub fn of_untyped(json: &Json) -> Self {
        match json {
            Json::Number(number) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            Json::Array(items) => Self::list(items.iter().map(Self::of_untyped).collect()),
            Json::Object(fields) => Self::Escaped(Arc::new(
                fields
                    .iter()
                    .map(|(name, value)| (Key::String(name.as_str().into()), Self::of_untyped(value)))
                    .collect(),
            )),
            other => Self::of_json(other),
        }
    }

    /// Converts a value to a type. A value that does not match is converted by its own type. A null field of an object
    /// is absent.
    pub fn typed(json: &Json, declared: &Declared) -> Self {
        match (json, &declared.ty) {
            (Json::Number(number), Type::Double) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            (Json::Number(number), Type::Uint) => Self::Uint(number.as_u64().unwrap_or_default()),
            (Json::Number(number), Type::Int) => Self::Int(
                number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).unwrap_or(0),
            ),
            (Json::String(text), ty) => Self::typed_text(text, ty),
            (Json::Array(items), Type::List(_)) => {
                let read = |item: &Json| match &declared.element {
                    Some(element) => Self::typed(item, element),
                    None => Self::of_json(item),
                };
                let identity = declared.identity.clone();
                Self::List(Arc::new(List { items: items.iter().map(read).collect(), identity }))
            }
            (Json::Object(fields), Type::Map(..)) => {
                let read = |value: &Json| match &declared.element {
                    Some(element) => Self::typed(value, element),
                    None => Self::of_json(value),
                };
                Self::map(fields.iter().map(|(name, value)| (Key::String(name.as_str().into()), read(value))))
            }
            (Json::Object(fields), Type::Object(object)) => {
                let known =
                    fields.iter().filter(|(_, value)| !value.is_null()).filter_map(|(name, value)| {
                        let field = object.fields.get(&super::escape::escape(name)?)?;
                        Some((Key::String(name.as_str().into()), Self::typed(value, field)))
                    });
                Self::Escaped(Arc::new(known.collect()))
            }
            _ => Self::of_json(json),
        }
    }

    fn typed_text(text: &str, ty: &Type) -> Self {
        let plain = || Self::text(text);
        match ty {
            Type::Bytes => super::libraries::strings::from_base64(text)
                .map_or_else(plain, |bytes| Self::Bytes(bytes.into())),
            Type::Duration => super::duration::parse(text).map_or_else(plain, Self::Duration),
            Type::Timestamp => match text.parse::<Timestamp>() {
                Ok(time) => Self::Timestamp(time),
                Err(_) => format!("{text}T00:00:00Z").parse().map_or_else(|_| plain(), Self::Timestamp),
            },
            _ => plain(),
        }
    }

    /// Returns the name of the value's type.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) | Self::Domains(_) | Self::Escaped(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Url(_) => "kubernetes.URL",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Message(message) => &message.name,
            Self::Foreign(foreign) => foreign.type_name(),
        }
    }

    /// Returns the size used for computing costs.
    pub(super) fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.items.len(),
            Self::Map(entries) | Self::Domains(entries) | Self::Escaped(entries) => entries.len(),
            Self::Ip(address) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Self::Cidr(address, _) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Self::Optional(Some(value)) => return value.size(),
            _ => 1,
        };
        size as u64
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn key(&self) -> Option<Key> {
        Some(match self {
            Self::Bool(on) => Key::Bool(*on),
            Self::Int(number) => Key::Int(*number),
            Self::Uint(number) => Key::Uint(*number),
            Self::String(text) => Key::String(text.clone()),
            Self::Double(number) if number.fract() == 0.0 => Key::Int(*number as i64),
            _ => return None,
        })
    }

    /// Counts the parts of the value. Values share parts; one counts as often as it occurs. `None` if there are more than
    /// `most` or they nest deeper than `depth`.
    pub fn parts(&self, depth: usize, most: usize) -> Option<usize> {
        let mut left = most;
        self.fits(depth, &mut left).then(|| most - left)
    }

    fn fits(&self, depth: usize, left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else { return false };
        *left = rest;
        let Some(depth) = depth.checked_sub(1) else { return false };
        match self {
            Self::List(list) => list.items.iter().all(|item| item.fits(depth, left)),
            Self::Map(entries) | Self::Domains(entries) | Self::Escaped(entries) => {
                entries.values().all(|value| value.fits(depth, left))
            }
            Self::Message(message) => message.fields.values().all(|value| value.fits(depth, left)),
            Self::Optional(Some(inner)) => inner.fits(depth, left),
            _ => true,
        }
    }

    /// Returns whether this is the zero value of its type.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(on) => !on,
            Self::Int(number) => *number == 0,
            Self::Uint(number) => *number == 0,
            Self::Double(number) => *number == 0.0,
            Self::Duration(nanoseconds) => *nanoseconds == 0,
            Self::Optional(value) => value.is_none(),
            Self::Message(message) => &*message.name != message::JSON_PATCH && message.fields.is_empty(),
            Self::String(_)
            | Self::Bytes(_)
            | Self::List(_)
            | Self::Map(_)
            | Self::Domains(_)
            | Self::Escaped(_) => self.size() == 0,
            _ => false,
        }
    }

    /// Converts to JSON that needs no type information to be read.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Null | Self::Optional(None) => Json::Null,
            Self::Bool(on) => (*on).into(),
            Self::Int(number) => (*number).into(),
            Self::Uint(number) => (*number).into(),
            Self::Double(number) => (*number).into(),
            Self::String(text) => text.as_ref().into(),
            Self::Duration(nanoseconds) => super::duration::shown(*nanoseconds).into(),
            Self::Timestamp(time) => time.to_string().into(),
            Self::Bytes(bytes) => super::libraries::strings::to_base64(bytes).into(),
            Self::List(list) => list.items.iter().map(Self::to_json).collect(),
            Self::Map(entries) | Self::Domains(entries) | Self::Escaped(entries) => {
                Json::Object(entries.iter().map(|(key, value)| (key.to_string(), value.to_json())).collect())
            }
            Self::Optional(Some(value)) => value.to_json(),
            Self::Message(message) => {
                let field = |(name, value): (&Arc<str>, &Self)| (name.to_string(), value.to_json());
                Json::Object(message.fields.iter().map(field).collect())
            }
            other => format!("{other:?}").into(),
        }
    }
}

impl Key {
    pub(super) fn val(&self) -> Val {
        match self {
            Self::Bool(on) => Val::Bool(*on),
            Self::Int(number) => Val::Int(*number),
            Self::Uint(number) => Val::Uint(*number),
            Self::String(text) => Val::String(text.clone()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(on) => write!(f, "{on}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Uint(number) => write!(f, "{number}"),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl PartialEq for Val {
    fn eq(&self, other: &Self) -> bool {
        if let Some(order) = compare_numbers(self, other) {
            return order == Some(std::cmp::Ordering::Equal);
        }
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::List(a), Self::List(b)) => equal_lists(a, b),
            (
                Self::Map(a) | Self::Domains(a) | Self::Escaped(a),
                Self::Map(b) | Self::Domains(b) | Self::Escaped(b),
            ) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, x), Self::Cidr(b, y)) => a == b && x == y,
            (Self::Semver(a), Self::Semver(b)) => a == b,
            (Self::Format(a), Self::Format(b)) => a == b,
            (Self::Message(a), Self::Message(b)) => a == b,
            _ => false,
        }
    }
}

/// Compares two lists. If items are not identified by position, their order does not matter.
fn equal_lists(a: &List, b: &List) -> bool {
    if a.items.len() != b.items.len() {
        return false;
    }
    match a.identity {
        Identity::Position => a.items == b.items,
        _ => {
            let (of_a, of_b) = (Members::of(&a.items), Members::of(&b.items));
            a.items.iter().all(|item| of_b.has(item)) && b.items.iter().all(|item| of_a.has(item))
        }
    }
}

/// The items of a list, for lookups. A list can be as long as a request body allows, so values with a canonical text
/// form are not compared one by one.
pub(super) struct Members<'v> {
    written: BTreeSet<String>,
    others: Vec<&'v Val>,
}

impl<'v> Members<'v> {
    pub(super) fn of(items: &'v [Val]) -> Self {
        let mut members = Self { written: BTreeSet::new(), others: Vec::new() };
        for item in items {
            members.add(item);
        }
        members
    }

    /// Adds an item. Returns whether it is new.
    pub(super) fn add(&mut self, item: &'v Val) -> bool {
        match written(item) {
            Some(text) => self.written.insert(text),
            None if self.others.contains(&item) => false,
            None => {
                self.others.push(item);
                true
            }
        }
    }

    pub(super) fn has(&self, item: &Val) -> bool {
        match written(item) {
            Some(text) => self.written.contains(&text),
            None => self.others.contains(&item),
        }
    }
}

/// Returns the canonical text form, which is the same for equal values. `None` for types without one.
pub(super) fn written(value: &Val) -> Option<String> {
    let all = |items: &[Val]| items.iter().map(written).collect::<Option<Vec<_>>>();
    Some(match value {
        Val::Null | Val::Bool(_) | Val::String(_) | Val::Bytes(_) | Val::Duration(_) | Val::Timestamp(_) => {
            format!("{value:?}")
        }
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) if number.fract() == 0.0 && number.abs() < 1e15 => (*number as i64).to_string(),
        Val::Double(number) if !number.is_nan() => format!("{number:?}"),
        Val::List(list) if list.identity == Identity::Position => {
            format!("[{}]", all(&list.items)?.join(","))
        }
        Val::List(list) => {
            let items: BTreeSet<String> = all(&list.items)?.into_iter().collect();
            format!("{} of {items:?}", list.items.len())
        }
        Val::Map(entries) | Val::Domains(entries) | Val::Escaped(entries) => {
            let entries = entries.iter().map(|(key, value)| Some(format!("{key:?}:{}", written(value)?)));
            format!("{{{}}}", entries.collect::<Option<Vec<_>>>()?.join(","))
        }
        _ => return None,
    })
}

/// Compares two numbers of any type. Returns `None` if one of them is not a number.
pub(super) fn compare_numbers(a: &Val, b: &Val) -> Option<Option<std::cmp::Ordering>> {
    let wide = |value: &Val| match value {
        Val::Int(number) => Some(i128::from(*number)),
        Val::Uint(number) => Some(i128::from(*number)),
        _ => None,
    };
    let float = |value: &Val| match value {
        Val::Double(number) => Some(*number),
        other => wide(other).map(|number| number as f64),
    };
    if let (Some(a), Some(b)) = (wide(a), wide(b)) {
        return Some(Some(a.cmp(&b)));
    }
    let (a, b) = (float(a)?, float(b)?);
    Some(a.partial_cmp(&b))
}

/// Compares two values of the same type. Returns `None` if they have no order.
pub(super) fn compare(a: &Val, b: &Val) -> Option<std::cmp::Ordering> {
    if let Some(order) = compare_numbers(a, b) {
        return order;
    }
    match (a, b) {
        (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
        (Val::String(a), Val::String(b)) => Some(a.cmp(b)),
        (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
        (Val::Duration(a), Val::Duration(b)) => Some(a.cmp(b)),
        (Val::Timestamp(a), Val::Timestamp(b)) => Some(a.cmp(b)),
        _ => None,
    }
}
