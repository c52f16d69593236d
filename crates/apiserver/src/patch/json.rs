//! JSON patches (RFC 6902), with v1.34's deviations: negative indexes count from the end, a replaced field need not
//! exist, and a test for null passes if the field is absent.

use serde_json::{Map, Value};

use crate::json;
use crate::schema::FieldValidation;
use crate::schema::go;
use crate::schema::untyped::{self, Untyped};

use super::PatchError;

const MAX_OPERATIONS: usize = 10_000;

/// Maximum bytes added by all copies of a patch: the maximum size of a request body.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Maximum number of unknown and duplicate fields to report.
const MAX_PROBLEMS: usize = 100;

/// Maximum nesting of a patched document: as deep as the decoder reads. Copies could double the depth with every
/// operation, and every traversal of a document uses stack in proportion to its depth.
const MAX_DEPTH: usize = 127;

/// Maximum number of values that the operations of a patch may visit or shift: 10,000 moves of a large part of an
/// object would take minutes. At about 10 ns each this is a tenth of a second.
const MAX_TOUCHED: usize = 10_000_000;

/// The cost of a patch so far.
#[derive(Default)]
struct Work {
    copied: usize,
    touched: usize,
}

impl Work {
    fn touch(&mut self, values: usize) -> Result<(), String> {
        self.touched = self.touched.saturating_add(values);
        match self.touched <= MAX_TOUCHED {
            true => Ok(()),
            false => Err(format!("the patch takes too much work: it moves more than {MAX_TOUCHED} values")),
        }
    }
}

/// A parsed patch.
pub struct Operations {
    operations: Vec<Operation>,
    /// Unknown and duplicate fields in the patch itself.
    pub(super) problems: Vec<String>,
}

#[derive(Default)]
struct Operation {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

impl Operations {
    pub fn parse(patch: &[u8], validation: FieldValidation) -> Result<Self, PatchError> {
        let bad = |why: String| match validation {
            FieldValidation::Ignore => PatchError::BadRequest(why),
            _ => PatchError::BadRequest(format!("error decoding patch: {why}")),
        };
        let Untyped { value, duplicates } = untyped::parse(patch).map_err(bad)?;
        Self::read(value, duplicates, &bad)
    }

    /// Reads operations that are not from a client.
    pub(crate) fn of(operations: Value) -> Result<Self, PatchError> {
        Self::read(operations, Vec::new(), &PatchError::BadRequest)
    }

    /// Fails if a patch has too many operations.
    pub(crate) fn check_count(count: usize) -> Result<(), PatchError> {
        match count <= MAX_OPERATIONS {
            true => Ok(()),
            false => Err(PatchError::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
            ))),
        }
    }

    fn read(
        value: Value,
        duplicates: Vec<String>,
        bad: &dyn Fn(String) -> PatchError,
    ) -> Result<Self, PatchError> {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            other => return Err(bad(wrong_type(&other, "value of type []handlers.jsonPatchOp"))),
        };
        Self::check_count(items.len())?;
        let mut problems = duplicates;
        let operations = items.into_iter().enumerate();
        let operations = operations
            .map(|(index, item)| Operation::parse(index, item, &mut problems))
            .collect::<Result<_, _>>()
            .map_err(bad)?;
        problems.sort_by_key(|problem| operation_of(problem));
        let problems = problems.into_iter().map(|problem| format!("json patch {problem}")).collect();
        Ok(Self { operations, problems })
    }

    /// Whether the patch is empty.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Applies all operations or none.
    pub fn apply(&self, document: Value) -> Result<Value, PatchError> {
        self.run(document).map_err(|refused| match refused {
            Refused::Test(why) | Refused::Other(why) => PatchError::Unprocessable(why),
        })
    }

    /// Applies all operations or none. `None` if a test failed.
    pub(crate) fn try_apply(&self, document: Value) -> Result<Option<Value>, PatchError> {
        match self.run(document) {
            Ok(document) => Ok(Some(document)),
            Err(Refused::Test(_)) => Ok(None),
            Err(Refused::Other(why)) => Err(PatchError::Unprocessable(why)),
        }
    }

    fn run(&self, mut document: Value) -> Result<Value, Refused> {
        let mut work = Work::default();
        for operation in &self.operations {
            operation.apply(&mut document, &mut work)?;
        }
        Ok(document)
    }
}

/// Why an operation was not applied.
enum Refused {
    /// A test found another value.
    Test(String),
    Other(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

/// Returns the index of the operation that a problem is about.
fn operation_of(problem: &str) -> Option<usize> {
    let (_, rest) = problem.split_once("\"[")?;
    rest.split_once(']')?.0.parse().ok()
}

fn wrong_type(found: &Value, place: &str) -> String {
    format!("json: cannot unmarshal {} into Go {place}", go::kind_of(found))
}

impl Operation {
    fn parse(index: usize, item: Value, problems: &mut Vec<String>) -> Result<Self, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            other => return Err(wrong_type(&other, "value of type handlers.jsonPatchOp")),
        };
        let mut operation = Self::default();
        for (name, value) in fields {
            match name.as_str() {
                "op" => operation.op = text(&name, value)?,
                "path" => operation.path = text(&name, value)?,
                "from" => operation.from = text(&name, value)?,
                "value" => operation.value = value,
                _ if problems.len() >= MAX_PROBLEMS => {}
                _ => problems.push(format!("unknown field {:?}", format!("[{index}].{name}"))),
            }
        }
        Ok(operation)
    }

    fn apply(&self, document: &mut Value, work: &mut Work) -> Result<(), Refused> {
        match self.op.as_deref().unwrap_or("unknown") {
            "add" => self.add(document, work)?,
            "remove" => self.remove(document, work)?,
            "replace" => self.replace(document)?,
            "move" => self.relocate(document, work)?,
            "copy" => self.copy(document, work)?,
            "test" => self.test(document)?,
            other => return Err(Refused::Other(format!("Unexpected kind: {other}"))),
        }
        Ok(())
    }

    /// Returns the path. The errors of some operations say less than those of others, as in v1.34.
    fn path(&self) -> Result<&str, String> {
        self.path.as_deref().ok_or_else(|| {
            let op = self.op.as_deref().unwrap_or_default();
            let why =
                if matches!(op, "add" | "remove" | "copy") { "" } else { "operation missing path field: " };
            format!("{op} operation failed to decode path: {why}missing value")
        })
    }

    fn from(&self) -> Result<&str, String> {
        self.from.as_deref().ok_or_else(|| {
            let op = self.op.as_deref().unwrap_or_default();
            format!("{op} operation failed to decode from: operation, missing from field: missing value")
        })
    }

    fn add(&self, document: &mut Value, work: &mut Work) -> Result<(), String> {
        let path = self.path()?;
        let mut place = PointerTarget::find(document, path).ok_or_else(|| {
            format!("add operation does not apply: doc is missing path: {path:?}: missing value")
        })?;
        check_depth(path, &self.value)?;
        work.touch(place.neighbours())?;
        place.add(self.value.clone()).map_err(|why| format!("error in add for path: '{path}': {why}"))
    }

    fn remove(&self, document: &mut Value, work: &mut Work) -> Result<(), String> {
        let path = self.path()?;
        let mut place = PointerTarget::find(document, path).ok_or_else(|| {
            format!("remove operation does not apply: doc is missing path: {path:?}: missing value")
        })?;
        work.touch(place.neighbours())?;
        place.remove().map(drop).map_err(|why| format!("error in remove for path: '{path}': {why}"))
    }

    fn replace(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        if path.is_empty() {
            if !self.value.is_object() && !self.value.is_array() {
                return Err("replace operation value must be object or array".to_owned());
            }
            *document = self.value.clone();
            return Ok(());
        }
        let mut place = PointerTarget::find(document, path).ok_or_else(|| {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        })?;
        check_depth(path, &self.value)?;
        place.set(self.value.clone()).map_err(|_| {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        })
    }

    /// Applies `move`, which is a keyword.
    fn relocate(&self, document: &mut Value, work: &mut Work) -> Result<(), String> {
        let (from, path) = (self.from()?, self.path()?);
        let mut source = PointerTarget::find(document, from).ok_or_else(|| {
            format!("move operation does not apply: doc is missing from path: {from}: missing value")
        })?;
        work.touch(source.neighbours())?;
        let value = source.remove().map_err(|why| format!("error in move for path: '{from}': {why}"))?;
        let mut place = PointerTarget::find(document, path).ok_or_else(|| {
            format!("move operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        work.touch(place.neighbours().saturating_add(json::size(&value)))?;
        check_depth(path, &value)?;
        place.add(value).map_err(|why| format!("error in move for path: '{path}': {why}"))
    }

    fn copy(&self, document: &mut Value, work: &mut Work) -> Result<(), String> {
        let (from, path) = (self.from()?, self.path()?);
        let mut source = PointerTarget::find(document, from).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing from path: {from}: missing value")
        })?;
        let value = source.get().map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
        let value = value.cloned().unwrap_or_default();
        work.copied += value.to_string().len();
        if work.copied > MAX_COPIED_BYTES {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED_BYTES}",
                work.copied
            ));
        }
        let mut place = PointerTarget::find(document, path).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        work.touch(place.neighbours())?;
        check_depth(path, &value)?;
        place.add(value).map_err(|why| format!("error while adding value during copy: {why}"))
    }

    fn test(&self, document: &mut Value) -> Result<(), Refused> {
        let path = self.path()?;
        let failed = || Refused::Test(format!("testing value {path} failed: test failed"));
        if path.is_empty() {
            return if *document == self.value { Ok(()) } else { Err(failed()) };
        }
        let mut place = PointerTarget::find(document, path).ok_or_else(|| {
            format!("test operation does not apply: is missing path: {path}: missing value")
        })?;
        let found = place.get().map_err(|why| format!("error in test for path: '{path}': {why}"))?;
        if found.unwrap_or(&Value::Null) == &self.value { Ok(()) } else { Err(failed()) }
    }
}

fn check_depth(path: &str, value: &Value) -> Result<(), String> {
    match path.matches('/').count() + json::depth(value) {
        ..=MAX_DEPTH => Ok(()),
        deep => Err(format!("the patched document would be nested {deep} deep, the limit is {MAX_DEPTH}")),
    }
}

fn text(field: &str, value: Value) -> Result<Option<String>, String> {
    match value {
        Value::String(text) => Ok(Some(text)),
        Value::Null => Ok(None),
        other => Err(wrong_type(&other, &format!("struct field jsonPatchOp.{field} of type string"))),
    }
}

/// The object field or list item that a pointer refers to; it need not exist, but its parent must.
enum PointerTarget<'d> {
    Field(&'d mut Map<String, Value>, String),
    Item(&'d mut Vec<Value>, String),
}

impl<'d> PointerTarget<'d> {
    fn find(document: &'d mut Value, pointer: &str) -> Option<Self> {
        let (_, tokens) = pointer.split_once('/')?;
        let mut tokens = tokens.split('/').map(unescape).peekable();
        let mut at = document;
        loop {
            let token = tokens.next()?;
            if tokens.peek().is_none() {
                return match at {
                    Value::Object(fields) => Some(Self::Field(fields, token)),
                    Value::Array(items) => Some(Self::Item(items, token)),
                    _ => None,
                };
            }
            at = match at {
                Value::Object(fields) => fields.get_mut(&token)?,
                Value::Array(items) => {
                    let index = index(&token, items.len()).ok()?;
                    items.get_mut(index)?
                }
                _ => return None,
            };
        }
    }

    /// Returns how many items an insertion or removal here may shift.
    fn neighbours(&self) -> usize {
        match self {
            Self::Field(..) => 0,
            Self::Item(_, token) if token == "-" => 0,
            Self::Item(items, _) => items.len(),
        }
    }

    /// Returns the value, if there is one.
    fn get(&mut self) -> Result<Option<&Value>, String> {
        match self {
            Self::Field(fields, key) => Ok(fields.get(key)),
            Self::Item(items, token) => {
                let index = existing(token, items.len())?;
                Ok(items.get(index))
            }
        }
    }

    fn add(&mut self, value: Value) -> Result<(), String> {
        match self {
            Self::Field(fields, key) => _ = fields.insert(std::mem::take(key), value),
            Self::Item(items, token) if token == "-" => items.push(value),
            Self::Item(items, token) => {
                let index = index(token, items.len() + 1)?;
                if index > items.len() {
                    return Err(invalid_index(token));
                }
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn set(&mut self, value: Value) -> Result<(), String> {
        match self {
            Self::Field(fields, key) => _ = fields.insert(std::mem::take(key), value),
            Self::Item(items, token) => {
                let index = existing(token, items.len())?;
                items[index] = value;
            }
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<Value, String> {
        match self {
            Self::Field(fields, key) => fields
                .remove(key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
            Self::Item(items, token) => {
                let index = existing(token, items.len())?;
                Ok(items.remove(index))
            }
        }
    }
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn invalid_index(token: &str) -> String {
    format!("Unable to access invalid index: {token}: invalid index referenced")
}

/// Parses an index, from the end if it is negative. It may be out of bounds.
fn index(token: &str, length: usize) -> Result<usize, String> {
    let index: i64 = token.parse().map_err(|_| {
        format!(
            "value was not a proper array index: '{token}': strconv.Atoi: parsing {token:?}: invalid syntax"
        )
    })?;
    match usize::try_from(index) {
        Ok(index) => Ok(index),
        Err(_) => {
            let back = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
            length.checked_sub(back).ok_or_else(|| invalid_index(token))
        }
    }
}

/// Parses the index of an existing item.
fn existing(token: &str, length: usize) -> Result<usize, String> {
    index(token, length).and_then(|index| if index < length { Ok(index) } else { Err(invalid_index(token)) })
}
