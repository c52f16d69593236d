//! Builtins: functions that need no import, and the packages of the standard library.
//!
//! A builtin is a pure function of concrete arguments. A builtin that returns a bool can also be used as a constraint,
//! without its first argument: `strings.MinRunes(3)`.

pub(crate) mod base64;
mod core;
mod digest;
mod encoding;
mod list;
mod list_sort;
mod math;
mod net;
mod path;
mod regexp;
mod strconv;
mod strings;
mod structs;
mod time;
mod yaml;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::data::Data;
use crate::error::{Error, ErrorKind, Position};
use crate::eval::node::{NodeId, Validator};
use crate::eval::value_of::Val;
use crate::eval::{Evaluator, Res};
use crate::host::HostFunction;
use crate::number::Number;
use crate::value::Atom;

/// A builtin function.
pub(crate) struct Builtin {
    name: &'static str,
    /// The minimum and maximum number of arguments.
    arity: (usize, usize),
    /// Whether it can be used as a constraint.
    checks: bool,
    function: fn(&mut Args<'_>) -> Res<Val>,
}

impl fmt::Debug for Builtin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

impl Builtin {
    const fn new(name: &'static str, arity: usize, function: fn(&mut Args<'_>) -> Res<Val>) -> Self {
        Self { name, arity: (arity, arity), checks: false, function }
    }

    const fn check(name: &'static str, arity: usize, function: fn(&mut Args<'_>) -> Res<Val>) -> Self {
        Self { name, arity: (arity, arity), checks: true, function }
    }

    const fn up_to(mut self, most: usize) -> Self {
        self.arity.1 = most;
        self
    }

    pub(crate) fn run(&self, evaluator: &mut Evaluator, values: Vec<Val>, at: &Position) -> Res<Val> {
        (self.function)(&mut Args { evaluator, values, at })
    }
}

/// The packages that are implemented.
const PACKAGES: &[(&str, &[Builtin])] = &[
    ("", core::TABLE),
    ("strings", strings::TABLE),
    ("strconv", strconv::TABLE),
    ("list", list::TABLE),
    ("math", math::TABLE),
    ("regexp", regexp::TABLE),
    ("struct", structs::TABLE),
    ("path", path::TABLE),
    ("net", net::TABLE),
    ("time", time::TABLE),
    ("encoding/json", encoding::JSON),
    ("encoding/yaml", encoding::YAML),
    ("encoding/base64", encoding::BASE64),
    ("encoding/hex", encoding::HEX),
    ("crypto/md5", digest::MD5),
    ("crypto/sha1", digest::SHA1),
    ("crypto/sha256", digest::SHA256),
    ("crypto/sha512", digest::SHA512),
];

pub(crate) fn is_package(path: &str) -> bool {
    !path.is_empty() && PACKAGES.iter().any(|(known, _)| *known == path)
}

/// Returns the paths of the packages, for suggestions.
pub(crate) fn package_paths() -> impl Iterator<Item = String> {
    PACKAGES.iter().map(|(path, _)| (*path).to_owned()).filter(|path| !path.is_empty())
}

/// Returns a function of a package. The empty path has the builtins that need no import.
pub(crate) fn find(path: &str, name: &str) -> Option<Function> {
    let (path, table) = PACKAGES.iter().find(|(known, _)| *known == path)?;
    let builtin = table.iter().find(|builtin| builtin.name == name)?;
    let package = path.rsplit('/').next().unwrap_or_default();
    let name = if package.is_empty() { name.to_owned() } else { format!("{package}.{name}") };
    Some(Function { name, kind: FunctionKind::Builtin(builtin) })
}

/// Returns a constant of a package.
pub(crate) fn constant(path: &str, name: &str) -> Option<Atom> {
    match path {
        "math" => math::constant(name),
        "time" => time::constant(name),
        "list" => list_sort::constant(name),
        "path" => path::constant(name),
        _ => None,
    }
}

/// A function as a value.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    name: String,
    kind: FunctionKind,
}

#[derive(Clone)]
enum FunctionKind {
    Builtin(&'static Builtin),
    Host(Arc<dyn HostFunction>),
}

impl fmt::Debug for FunctionKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Builtin(builtin) => builtin.name,
            Self::Host(_) => "host function",
        })
    }
}

impl Function {
    pub(crate) fn host(path: &str, name: &str, function: Arc<dyn HostFunction>) -> Self {
        let package = path.rsplit('/').next().unwrap_or(path);
        Self { name: format!("{package}.{name}"), kind: FunctionKind::Host(function) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn call(&self, evaluator: &mut Evaluator, values: Vec<Val>, at: &Position) -> Res<Val> {
        match &self.kind {
            FunctionKind::Builtin(builtin) => self.call_builtin(evaluator, builtin, values, at),
            FunctionKind::Host(function) => self.call_host(evaluator, function.as_ref(), &values, at),
        }
    }

    fn call_builtin(
        &self,
        evaluator: &mut Evaluator,
        builtin: &'static Builtin,
        values: Vec<Val>,
        at: &Position,
    ) -> Res<Val> {
        let (least, most) = builtin.arity;
        if builtin.checks && values.len() + 1 == least {
            return Ok(Val::Validator(self.constraint(builtin, values, at)));
        }
        if values.len() < least || values.len() > most {
            let wanted = if least == most { least.to_string() } else { format!("{least} to {most}") };
            let message = format!("{} takes {wanted} arguments, not {}", self.name, values.len());
            return Err(Error::new(ErrorKind::Conflict, message).at(at).into());
        }
        builtin.run(evaluator, values, at).map_err(|bottom| self.in_call(bottom))
    }

    /// Adds the function's name to an error without one.
    fn in_call(&self, bottom: Rc<Error>) -> Rc<Error> {
        if bottom.kind != ErrorKind::Conflict || !bottom.path.is_empty() || self.name == "error" {
            return bottom;
        }
        let mut error = (*bottom).clone();
        error.message = format!("in call to {}: {}", self.name, error.message);
        error.into()
    }

    fn constraint(&self, builtin: &'static Builtin, arguments: Vec<Val>, at: &Position) -> Rc<Validator> {
        Rc::new(Validator { name: self.name.clone(), builtin, arguments, position: at.clone() })
    }

    fn call_host(
        &self,
        evaluator: &mut Evaluator,
        function: &dyn HostFunction,
        values: &[Val],
        at: &Position,
    ) -> Res<Val> {
        let mut arguments = Vec::with_capacity(values.len());
        for value in values {
            arguments.push(evaluator.data_of(value, at)?.to_json().map_err(Rc::new)?);
        }
        let failed =
            |why: String| Error::new(ErrorKind::Conflict, format!("{} failed: {why}", self.name)).at(at);
        let result = function.call(&arguments).map_err(failed)?;
        let data = Data::from_json(&result).map_err(Rc::new)?;
        Ok(Val::Data(Arc::new(data)))
    }

    /// Returns the function as a constraint, if the value is its only argument.
    pub(crate) fn validator(&self, at: &Position) -> Option<Rc<Validator>> {
        match self.kind {
            FunctionKind::Builtin(builtin) if builtin.checks && builtin.arity.0 == 1 => {
                Some(self.constraint(builtin, Vec::new(), at))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Validator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.arguments.iter().map(shown).collect();
        write!(out, "{}({})", self.name, arguments.join(", "))
    }
}

fn shown(value: &Val) -> String {
    match value {
        Val::Atom(atom) => atom.to_string(),
        _ => "…".to_owned(),
    }
}

/// The number of argument bytes per step.
const BYTES_PER_STEP: usize = 64;
/// The size of a list element without its text: two reference counts, two lengths, a pointer and an enum.
const BYTES_PER_ITEM: usize = 64;

/// The arguments of a call.
pub(crate) struct Args<'a> {
    evaluator: &'a mut Evaluator,
    values: Vec<Val>,
    at: &'a Position,
}

impl Args<'_> {
    /// Makes an error.
    fn fail<T>(&self, message: impl Into<String>) -> Res<T> {
        Err(Error::new(ErrorKind::Conflict, message).at(self.at).into())
    }

    fn count(&self) -> usize {
        self.values.len()
    }

    fn value(&self, index: usize) -> Val {
        self.values.get(index).cloned().unwrap_or(Val::Atom(Atom::Null))
    }

    fn atom(&mut self, index: usize) -> Res<Atom> {
        let value = self.value(index);
        self.evaluator.atom(&value, self.at)
    }

    fn wrong<T>(&self, index: usize, wanted: &str, found: &Atom) -> Res<T> {
        self.fail(format!("argument {} must be {wanted}, not {found}", index + 1))
    }

    /// Returns a string, and charges for reading it: functions take time proportional to their arguments.
    fn text(&mut self, index: usize) -> Res<Arc<str>> {
        let text = match self.atom(index)? {
            Atom::Text(text) => text,
            Atom::Bytes(bytes) => String::from_utf8_lossy(&bytes).into(),
            other => return self.wrong(index, "a string", &other),
        };
        self.evaluator.charge(text.len() / BYTES_PER_STEP)?;
        Ok(text)
    }

    fn bytes(&mut self, index: usize) -> Res<Arc<[u8]>> {
        let bytes: Arc<[u8]> = match self.atom(index)? {
            Atom::Text(text) => text.as_bytes().into(),
            Atom::Bytes(bytes) => bytes,
            other => return self.wrong(index, "a string or bytes", &other),
        };
        self.evaluator.charge(bytes.len() / BYTES_PER_STEP)?;
        Ok(bytes)
    }

    fn number(&mut self, index: usize) -> Res<Number> {
        match self.atom(index)? {
            Atom::Number(number) => Ok(number),
            other => self.wrong(index, "a number", &other),
        }
    }

    fn int(&mut self, index: usize) -> Res<i128> {
        match self.atom(index)? {
            Atom::Number(number) if number.is_int() => Ok(number.as_i128().unwrap_or(0)),
            other => self.wrong(index, "an int", &other),
        }
    }

    fn size(&mut self, index: usize) -> Res<usize> {
        let value = self.int(index)?;
        match usize::try_from(value) {
            Ok(value) => Ok(value),
            Err(_) => self.fail(format!("argument {} must not be negative: {value}", index + 1)),
        }
    }

    fn bool(&mut self, index: usize) -> Res<bool> {
        match self.atom(index)? {
            Atom::Bool(value) => Ok(value),
            other => self.wrong(index, "a bool", &other),
        }
    }

    /// Returns the elements of a list.
    fn items(&mut self, index: usize) -> Res<Vec<NodeId>> {
        let value = self.value(index);
        let found = self.evaluator.list_of(&value, self.at)?;
        match found {
            Some(items) => {
                self.evaluator.charge(items.len())?;
                Ok(items)
            }
            None => self.fail(format!("argument {} must be a list", index + 1)),
        }
    }

    fn texts(&mut self, index: usize) -> Res<Vec<Arc<str>>> {
        let items = self.items(index)?;
        let at = self.at;
        let texts = items.into_iter().map(|item| match self.evaluator.atom(&Val::Node(item), at)? {
            Atom::Text(text) => Ok(text),
            other => self.fail(format!("argument {} must be a list of strings; it has {other}", index + 1)),
        });
        texts.collect()
    }

    fn numbers(&mut self, index: usize) -> Res<Vec<Number>> {
        let items = self.items(index)?;
        let at = self.at;
        let numbers = items.into_iter().map(|item| match self.evaluator.atom(&Val::Node(item), at)? {
            Atom::Number(number) => Ok(number),
            other => self.fail(format!("argument {} must be a list of numbers; it has {other}", index + 1)),
        });
        numbers.collect()
    }

    /// Returns an argument as concrete data.
    fn data(&mut self, index: usize) -> Res<Arc<Data>> {
        let value = self.value(index);
        self.evaluator.data_of(&value, self.at)
    }

    fn node(&mut self, index: usize) -> NodeId {
        let value = self.value(index);
        self.evaluator.materialize(value)
    }

    /// Returns a string that was created.
    fn created(&mut self, text: String) -> Res<Val> {
        self.evaluator.charge_text(text.len())?;
        Ok(Val::text(text))
    }

    fn created_bytes(&mut self, bytes: Vec<u8>) -> Res<Val> {
        self.evaluator.charge_text(bytes.len())?;
        Ok(Val::Atom(Atom::Bytes(bytes.into())))
    }

    /// Returns a list of strings. Each is charged as it is created, so an iterator should create them one by one.
    fn created_list(&mut self, texts: impl IntoIterator<Item = String>) -> Res<Val> {
        let mut items = Vec::new();
        for text in texts {
            self.evaluator.charge_text(text.len() + BYTES_PER_ITEM)?;
            items.push(Arc::new(Data::text(text)));
        }
        Ok(Val::Data(Arc::new(Data::List(items))))
    }

    fn list_of_items(&mut self, items: Vec<NodeId>) -> Res<Val> {
        self.evaluator.charge(items.len())?;
        Ok(Val::Items(Rc::new(items)))
    }
}

fn int(value: usize) -> Val {
    Val::Atom(Atom::int(value as i128))
}
