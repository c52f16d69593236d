//! Types, and which types are assignable to which.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::escape::RESERVED;
use super::value::Identity;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Only known at evaluation.
    Dyn,
    /// The type of an invalid expression. It causes no further errors.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    /// An object with known fields.
    Object(Arc<Object>),
    /// A type of a library, for example `kubernetes.URL`.
    Opaque(Arc<str>),
    /// A type whose values expressions construct, for example `Object.spec`.
    Message(Arc<str>),
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Arc<Type>),
    /// A type variable: from a function's declaration, or for an empty list.
    Param(u32),
}

/// An object with known fields and their size limits.
#[derive(Debug, Default)]
pub struct Object {
    pub name: String,
    pub fields: BTreeMap<String, Declared>,
}

impl Object {
    /// Returns the field that an expression names. Reserved words are accepted both plain and escaped.
    pub(super) fn named(&self, field: &str) -> Option<&Declared> {
        let escaped = || RESERVED.contains(&field).then(|| self.fields.get(&format!("__{field}__")))?;
        self.fields.get(field).or_else(escaped)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// A type declared by a schema, with its maximum number of elements and its minimum size in bytes.
#[derive(Clone, Debug)]
pub struct Declared {
    pub ty: Type,
    /// For a list or map, the number of elements. For a string or bytes, the length.
    pub max_elements: u64,
    pub min_size: u64,
    /// The type of a list's items or a map's values.
    pub element: Option<Arc<Declared>>,
    /// How the items of a list are identified.
    pub identity: Identity,
}

impl Declared {
    /// Declares a type without size limits.
    pub fn plain(ty: Type) -> Self {
        Self { ty, max_elements: u64::MAX, min_size: 1, element: None, identity: Identity::Position }
    }

    pub fn field(&self, name: &str) -> Option<&Self> {
        match &self.ty {
            Type::Object(object) => object.fields.get(name),
            _ => None,
        }
    }
}

impl Type {
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    pub fn opaque(name: &str) -> Self {
        Self::Opaque(name.into())
    }

    pub(super) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Whether null represents an absent value: for objects and for library types, including optionals.
    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Object(_)
                | Self::Opaque(_)
                | Self::Message(_)
                | Self::Optional(_)
                | Self::Duration
                | Self::Timestamp
        )
    }

    /// Whether it equals the other type, or is less specific because parts of it are dynamic.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Param(_), _) => true,
            (_, Self::Dyn | Self::Param(_)) => false,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.covers(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.covers(c) && b.covers(d),
            (Self::Type(_), Self::Type(_)) => true,
            (first, second) => first == second,
        }
    }

    /// Formats it for messages, where times have short names.
    pub(super) fn shown(&self) -> String {
        let name = self.to_string();
        name.replace("google.protobuf.Duration", "duration").replace("google.protobuf.Timestamp", "timestamp")
    }

    /// Returns its name, without the types of its parts.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Null => "null_type".into(),
            Self::List(_) => "list".into(),
            Self::Map(..) => "map".into(),
            Self::Optional(_) => "optional_type".into(),
            Self::Type(_) => "type".into(),
            other => other.to_string(),
        }
    }

    /// Whether it is the same type as another one.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b))
            | (Self::Optional(a), Self::Optional(b))
            | (Self::Type(a), Self::Type(b)) => a.is_equivalent(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.is_equivalent(c) && b.is_equivalent(d),
            (Self::Object(a), Self::Object(b)) => a == b || a.name == b.name,
            (first, second) => first == second,
        }
    }

    /// Returns whether all values have the same size.
    pub(super) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            Self::Optional(of) => of.is_scalar(),
            _ => false,
        }
    }

    /// Parses a type in the syntax of declarations: `list(A)`.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        if let Some((name, inside)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            let parts = split(inside);
            let part = |at: usize| parts.get(at).map_or(Self::Dyn, |part| Self::parse(part));
            return match name {
                "list" => Self::list(part(0)),
                "map" => Self::map(part(0), part(1)),
                "optional" => Self::optional(part(0)),
                _ => Self::Type(Arc::new(part(0))),
            };
        }
        match text {
            "dyn" => Self::Dyn,
            "null_type" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Timestamp,
            "A" => Self::Param(0),
            "B" => Self::Param(1),
            name => Self::opaque(name),
        }
    }
}

/// Splits at commas outside of parentheses.
pub(super) fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(object) => f.write_str(&object.name),
            Self::Opaque(name) | Self::Message(name) => f.write_str(name),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Type(of) => write!(f, "type({of})"),
            Self::Param(number) => write!(f, "_var{number}"),
        }
    }
}

/// The type variables resolved so far.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeBindings {
    types: BTreeMap<u32, Type>,
    next: u32,
}

/// Variables in declarations have small numbers. Those of a call get fresh ones starting here.
const FIRST_FRESH: u32 = 16;

impl TypeBindings {
    pub(super) fn fresh(&mut self) -> Type {
        self.next += 1;
        Type::Param(FIRST_FRESH + self.next)
    }

    /// Returns whether a type has more than this many parts. Types share their parts, and one counts as often as it
    /// occurs: a type can be exponentially larger than the expression it is of.
    pub(super) fn is_larger(&self, ty: &Type, most: usize) -> bool {
        let mut left = most;
        !self.fits(ty, &mut left)
    }

    fn fits(&self, ty: &Type, left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else { return false };
        *left = rest;
        match ty {
            Type::List(of) | Type::Optional(of) | Type::Type(of) => self.fits(of, left),
            Type::Map(key, value) => self.fits(key, left) && self.fits(value, left),
            Type::Param(number) => self.types.get(number).is_none_or(|found| self.fits(found, left)),
            _ => true,
        }
    }

    /// Substitutes all resolved variables. Unresolved ones become dynamic if `to_dyn` is set.
    pub(super) fn resolve(&self, ty: &Type, to_dyn: bool) -> Type {
        let part = |of: &Arc<Type>| Arc::new(self.resolve(of, to_dyn));
        match ty {
            Type::Param(number) => match self.types.get(number) {
                Some(found) => self.resolve(found, to_dyn),
                None if to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(item) => Type::List(part(item)),
            Type::Map(key, value) => Type::Map(part(key), part(value)),
            Type::Optional(of) => Type::Optional(part(of)),
            Type::Type(of) => Type::Type(part(of)),
            other => other.clone(),
        }
    }

    /// Replaces the variables of a declaration with those of a call.
    pub(super) fn instantiate(ty: &Type, fresh: &[Type]) -> Type {
        let part = |of: &Arc<Type>| Arc::new(Self::instantiate(of, fresh));
        match ty {
            Type::Param(number) => fresh.get(*number as usize).cloned().unwrap_or(Type::Dyn),
            Type::List(item) => Type::List(part(item)),
            Type::Map(key, value) => Type::Map(part(key), part(value)),
            Type::Optional(of) => Type::Optional(part(of)),
            Type::Type(of) => Type::Type(part(of)),
            other => other.clone(),
        }
    }

    /// Returns whether a value of type `from` can be used as `to`, and binds type variables accordingly.
    pub(super) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// The same for the arguments of a call: either all of them fit, or nothing is recorded.
    pub(super) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let saved = self.clone();
        let fits = from.iter().zip(to).all(|(from, to)| self.unify(from, to));
        if !fits {
            *self = saved;
        }
        fits
    }

    fn unify(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(number) = to {
            match self.substitute(from, *number) {
                Substitution::Fits => return true,
                Substitution::Clashes => return false,
                Substitution::Recursive => {}
            }
        }
        if let Type::Param(number) = from {
            return self.substitute(to, *number) == Substitution::Fits;
        }
        match (from, to) {
            (from, to) if from.is_dyn_or_error() || to.is_dyn_or_error() => true,
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.unify(a, c) && self.unify(b, d),
            (Type::Type(_), Type::Type(_)) => true,
            (from, to) => from == to,
        }
    }

    /// Whether a type can be bound to a parameter. Of two matching types, the parameter keeps the more general one.
    fn substitute(&mut self, ty: &Type, number: u32) -> Substitution {
        if *ty == Type::Param(number) {
            return Substitution::Fits;
        }
        let Some(known) = self.types.get(&number).cloned() else {
            if self.occurs(number, ty) {
                return Substitution::Recursive;
            }
            self.types.insert(number, ty.clone());
            return Substitution::Fits;
        };
        if *ty == known {
            return Substitution::Fits;
        }
        if !self.unify(ty, &known) {
            return Substitution::Clashes;
        }
        let general = most_general(ty, &known).clone();
        if !self.occurs(number, &general) {
            self.types.insert(number, general);
        }
        Substitution::Fits
    }

    fn occurs(&self, number: u32, ty: &Type) -> bool {
        match ty {
            Type::Param(other) if *other == number => true,
            Type::Param(other) => self.types.get(other).is_some_and(|known| self.occurs(number, known)),
            Type::List(of) | Type::Optional(of) | Type::Type(of) => self.occurs(number, of),
            Type::Map(key, value) => self.occurs(number, key) || self.occurs(number, value),
            _ => false,
        }
    }

    /// Returns the more general of two types, or `None` if neither is.
    pub(super) fn join(&mut self, first: &Type, second: &Type) -> Option<Type> {
        self.assign(first, second).then(|| most_general(first, second).clone())
    }
}

/// The result of binding a type parameter.
#[derive(PartialEq, Eq)]
enum Substitution {
    Fits,
    /// The parameter is already bound to something else.
    Clashes,
    /// The type contains the parameter.
    Recursive,
}

/// Returns the more general of two types that unify.
fn most_general<'t>(first: &'t Type, second: &'t Type) -> &'t Type {
    if first.covers(second) { first } else { second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_out() {
        let mut found = TypeBindings::default();
        let item = found.fresh();
        assert!(found.assign(&Type::list(Type::Int), &Type::list(item.clone())));
        assert_eq!(found.resolve(&item, true), Type::Int);
        assert!(!found.assign(&Type::String, &item));
        assert!(found.assign(&Type::Dyn, &item));
        assert_eq!(Type::parse("map(string, list(A))").to_string(), "map(string, list(_var0))");
    }
}
