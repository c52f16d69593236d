//! Decodes a request's body into an object that matches its schema.
//!
//! JSON is decoded in one pass; YAML and protobuf are converted to JSON values first. Unknown and duplicate fields are
//! errors, warnings or ignored, as the client asks; values of the wrong type are always errors.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::protobuf::Envelope;
use super::read::read;
use super::{Schema, go, registered, syntax, yaml, zero};
use crate::custom::{self, props::Props};

/// How to treat unknown and duplicate fields (`fieldValidation=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Strict,
    #[default]
    Warn,
    Ignore,
}

impl FieldValidation {
    /// Parses the query parameter; `None` if the value is unsupported.
    pub fn parse(parameter: &str) -> Option<Self> {
        match parameter {
            "" | "Warn" => Some(Self::Warn),
            "Strict" => Some(Self::Strict),
            "Ignore" => Some(Self::Ignore),
            _ => None,
        }
    }
}

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// The kind that an endpoint expects, and its schema.
#[derive(Clone)]
pub struct Target {
    pub schema: Schema,
    pub group: String,
    pub version: String,
    pub kind: String,
    /// The schema of a custom kind as in its CRD, used for decoding.
    pub custom: Option<Arc<Props>>,
}

/// An object in its stored form, with `apiVersion` and `kind`.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    pub object: Value,
    /// One per unknown or duplicate field, if the client asked for warnings.
    pub warnings: Vec<String>,
}

/// Why a body is not an object of the expected kind. Always a bad request (400).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeFailure {
    pub message: String,
}

/// Why a value does not match a schema: the decoder's message, without what was being decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeMismatch {
    /// A value of the wrong type, regardless of the validation level.
    #[error("{0}")]
    Wrong(String),
    /// Unknown and duplicate fields, one message each.
    #[error("{}", strict_error(.0))]
    Strict(Vec<String>),
}

impl Target {
    /// Returns a built-in kind by its schema's name; in the first of its group versions if there are several.
    pub fn built_in(name: &str) -> Option<Self> {
        let schema = Schema::built_in(name)?;
        let gvk = schema.root_struct()?.kinds.first()?.clone();
        let (group, rest) = gvk.split_once('/')?;
        let (version, kind) = rest.split_once('/')?;
        Some(Self { group: group.into(), version: version.into(), kind: kind.into(), schema, custom: None })
    }

    /// Returns an object of this kind with no field set.
    pub fn empty(&self) -> Value {
        self.typed(Value::Null)
    }

    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }
}

/// Decodes a body as an object of the target's kind.
pub fn decode(
    target: &Target,
    format: Format,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, DecodeFailure> {
    if let Some(schema) = &target.custom {
        return custom::decode::decode(target, schema, format, body, validation);
    }
    let strict = validation != FieldValidation::Ignore;
    let reading = match format {
        Format::Json => Reading::json(&target.schema, strict, body),
        Format::Yaml => Reading::yaml(&target.schema, strict, body),
        Format::Protobuf => Reading::protobuf(&target.schema, body),
    };
    let mut reading = reading.map_err(|message| target.unrecognized(&message, body))?;
    if !reading.stated.is(target) {
        let actual = target.actual(&reading.stated, body)?;
        if let Some(schema) = actual {
            // Report errors of the kind that the document states, not of the expected one.
            reading = reading.again(&schema, strict, format, body);
        }
        reading.fails_as(target)?;
        return Err(target.mismatch(&reading.stated));
    }
    reading.fails_as(target)?;
    if validation == FieldValidation::Strict && !reading.problems.is_empty() {
        return Err(target.cannot_be_handled(&reading.stated, &strict_error(&reading.problems)));
    }
    Ok(Decoded { object: target.typed(reading.object), warnings: reading.problems })
}

/// Converts a value, the result of a patch, to its stored form.
pub fn normalize(
    schema: &Schema,
    value: Value,
    validation: FieldValidation,
) -> Result<Decoded, TypeMismatch> {
    let strict = validation != FieldValidation::Ignore;
    let (object, findings) = read(schema, strict, value);
    if let Some(failure) = findings.failure {
        return Err(TypeMismatch::Wrong(failure));
    }
    let object = object.map_err(|error| TypeMismatch::Wrong(error.to_string()))?;
    if validation == FieldValidation::Strict && !findings.problems.is_empty() {
        return Err(TypeMismatch::Strict(findings.problems));
    }
    Ok(Decoded { object: or_zero(schema, object), warnings: findings.problems })
}

/// Formats problems: `strict decoding error: unknown field "a", duplicate field "b"`.
pub fn strict_error(problems: &[String]) -> String {
    format!("strict decoding error: {}", problems.join(", "))
}

/// The kind that a document states. Empty if absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeclaredType {
    #[serde(deserialize_with = "text_or_null")]
    api_version: String,
    #[serde(deserialize_with = "text_or_null")]
    kind: String,
}

fn text_or_null<'de, D: serde::Deserializer<'de>>(document: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(document)?.unwrap_or_default())
}

impl DeclaredType {
    fn of(object: &Value) -> Self {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { api_version: text("apiVersion"), kind: text("kind") }
    }

    /// Whether it matches the target; absent values do.
    fn is(&self, target: &Target) -> bool {
        let kind = self.kind.is_empty() || self.kind == target.kind;
        kind && (self.api_version.is_empty() || target.accepts(self.group(), self.version()))
    }

    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }
}

impl Target {
    fn accepts(&self, group: &str, version: &str) -> bool {
        let same = group == self.group && version == self.version;
        same || self.is_in_many_groups() && self.kinds().any(|kind| kind == self.path(group, version))
    }

    /// Whether this is an options kind (DeleteOptions), which is the same in every group version.
    fn is_in_many_groups(&self) -> bool {
        self.kinds().nth(1).is_some()
    }

    fn kinds(&self) -> impl Iterator<Item = &str> {
        self.schema.root_struct().into_iter().flat_map(|root| root.kinds.iter().map(|kind| &**kind))
    }

    fn path(&self, group: &str, version: &str) -> String {
        format!("{group}/{version}/{}", self.kind)
    }

    /// Adds the kind and API version to the object, since clients may omit them.
    fn typed(&self, object: Value) -> Value {
        let mut object = or_zero(&self.schema, object);
        if let Some(fields) = object.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| self.api_version().into());
            fields.entry("kind").or_insert_with(|| self.kind.clone().into());
        }
        object
    }

    /// Decodes a value that should be an object of this kind, but may state another.
    pub fn decode_value(&self, value: Value, validation: FieldValidation) -> Result<Decoded, TypeMismatch> {
        if let Some(schema) = &self.custom {
            return custom::decode::decode_value(self, schema, value, validation);
        }
        let stated = DeclaredType::of(&value);
        if stated.is(self) {
            let decoded = normalize(&self.schema, value, validation)?;
            return Ok(Decoded { object: self.typed(decoded.object), ..decoded });
        }
        let wrong = |failure: DecodeFailure| TypeMismatch::Wrong(failure.message);
        if let Some(schema) = self.actual(&stated, &[]).map_err(wrong)? {
            normalize(&schema, value, FieldValidation::Ignore)?;
        }
        Err(wrong(self.mismatch(&stated)))
    }

    /// Returns the schema of the kind that a document states; fails if there is no such kind.
    fn actual(&self, stated: &DeclaredType, body: &[u8]) -> Result<Option<Schema>, DecodeFailure> {
        if stated.api_version.matches('/').count() > 1 {
            let message = format!("unexpected GroupVersion string: {}", stated.api_version);
            return Err(self.unrecognized(&message, body));
        }
        let kind = if stated.kind.is_empty() { &self.kind } else { &stated.kind };
        let (group, version) = self.group_version_of(stated);
        match Schema::built_in_kind(group, version, kind) {
            Some(schema) => Ok(Some(schema)),
            None if *kind == self.kind && group == self.group && version == self.version => Ok(None),
            None if registered::is_registered(group, version, kind) => Ok(None),
            None => {
                let why = format!(
                    "no kind {kind:?} is registered for version {:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                    group_version(group, version)
                );
                Err(self.cannot_be_handled(stated, &why))
            }
        }
    }

    fn group_version_of<'a>(&'a self, stated: &'a DeclaredType) -> (&'a str, &'a str) {
        match stated.api_version.is_empty() {
            true => (&self.group, &self.version),
            false => (stated.group(), stated.version()),
        }
    }

    /// Builds the error for a valid object of another kind or version.
    fn mismatch(&self, stated: &DeclaredType) -> DecodeFailure {
        let (group, version) = self.group_version_of(stated);
        if stated.kind.is_empty() || stated.kind == self.kind {
            return DecodeFailure {
                message: format!(
                    "the API version in the data ({}) does not match the expected API version ({})",
                    group_version(group, version),
                    self.api_version()
                ),
            };
        }
        let internal = self.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
        let why = format!(
            "converting ({version}.{}) to ({internal}.{}): unknown conversion",
            stated.kind, self.kind
        );
        self.cannot_be_handled(stated, &why)
    }

    fn cannot_be_handled(&self, stated: &DeclaredType, why: &str) -> DecodeFailure {
        let kind = if stated.kind.is_empty() { &self.kind } else { &stated.kind };
        let (_, version) = self.group_version_of(stated);
        DecodeFailure {
            message: format!("{kind} in version {version:?} cannot be handled as a {}: {why}", self.kind),
        }
    }

    pub(crate) fn unrecognized(&self, why: &str, body: &[u8]) -> DecodeFailure {
        DecodeFailure {
            message: format!(
                "the object provided is unrecognized (must be of type {}): {why} ({})",
                self.kind,
                Summary(body)
            ),
        }
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn or_zero(schema: &Schema, object: Value) -> Value {
    if object.is_null() { zero::zero(schema.table(), schema.root()) } else { object }
}

/// The result of decoding a document with one schema.
struct Reading {
    object: Value,
    stated: DeclaredType,
    failure: Option<String>,
    problems: Vec<String>,
}

impl Reading {
    /// Fails if the text is not a document at all.
    fn json(schema: &Schema, strict: bool, body: &[u8]) -> Result<Self, String> {
        if syntax::may_be_too_deep(body) {
            syntax::check(body).map_err(|why| no_kind(&why))?;
        }
        let mut text = serde_json::Deserializer::from_slice(body);
        let (object, mut findings) = read(schema, strict, &mut text);
        match object.and_then(|object| text.end().map(|()| object)) {
            Ok(object) => {
                let problems = std::mem::take(&mut findings.problems);
                Self::new(object, findings.failure_in(body), problems, body)
            }
            Err(error) => {
                syntax::check(body).map_err(|why| no_kind(&why))?;
                if findings.failure.is_none() && std::str::from_utf8(body).is_err() {
                    return Self::json(schema, strict, String::from_utf8_lossy(body).as_bytes());
                }
                let problems = std::mem::take(&mut findings.problems);
                let failure = findings.failure_in(body).unwrap_or_else(|| error.to_string());
                Self::new(Value::Null, Some(failure), problems, body)
            }
        }
    }

    fn yaml(schema: &Schema, strict: bool, body: &[u8]) -> Result<Self, String> {
        let value = yaml::to_value(body)?;
        let stated = DeclaredType::of(&value);
        let (object, findings) = read(schema, strict, value);
        let mut problems = if strict { yaml::duplicate_keys(body) } else { Vec::new() };
        problems.extend(findings.problems);
        let failure = findings.failure.or_else(|| object.as_ref().err().map(ToString::to_string));
        Ok(Self { object: object.unwrap_or_default(), stated, failure, problems })
    }

    /// Decodes protobuf. Unknown field numbers are ignored at every validation level: they have no names to report.
    fn protobuf(schema: &Schema, body: &[u8]) -> Result<Self, String> {
        let envelope = Envelope::open(body)?;
        let stated = DeclaredType { api_version: envelope.api_version.clone(), kind: envelope.kind.clone() };
        let (object, failure) = match envelope.object(schema) {
            Ok(value) => {
                let (object, findings) = read(schema, false, value);
                let failure = findings.failure.or_else(|| object.as_ref().err().map(ToString::to_string));
                (object.unwrap_or_default(), failure)
            }
            Err(why) => (Value::Null, Some(why)),
        };
        Ok(Self { object, stated, failure, problems: Vec::new() })
    }

    /// Builds the result. Only a failed decoding has to look for the kind again.
    fn new(
        object: Value,
        failure: Option<String>,
        problems: Vec<String>,
        body: &[u8],
    ) -> Result<Self, String> {
        let stated = match &failure {
            None => DeclaredType::of(&object),
            Some(_) => match serde_json::from_slice::<Value>(body) {
                Ok(Value::Object(fields)) => stated_kind(&fields)?,
                Ok(other) => return Err(no_kind(&not_an_object(&other))),
                Err(_) => DeclaredType::default(),
            },
        };
        Ok(Self { object, stated, failure, problems })
    }

    fn again(self, schema: &Schema, strict: bool, format: Format, body: &[u8]) -> Self {
        let reading = match format {
            Format::Json => Self::json(schema, strict, body),
            Format::Yaml => Self::yaml(schema, strict, body),
            Format::Protobuf => Self::protobuf(schema, body),
        };
        reading.unwrap_or(self)
    }

    fn fails_as(&self, target: &Target) -> Result<(), DecodeFailure> {
        self.failure.as_ref().map_or(Ok(()), |why| Err(target.cannot_be_handled(&self.stated, why)))
    }
}

fn stated_kind(fields: &serde_json::Map<String, Value>) -> Result<DeclaredType, String> {
    for field in ["apiVersion", "kind"] {
        match fields.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                let found = go::kind_of(other);
                return Err(no_kind(&format!(
                    "json: cannot unmarshal {found} into Go struct field .{field} of type string"
                )));
            }
        }
    }
    Ok(DeclaredType::of(&Value::Object(fields.clone())))
}

fn no_kind(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

fn not_an_object(value: &Value) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        go::kind_of(value)
    )
}

/// The beginning of a body, as text if it looks like an object, otherwise in hexadecimal.
struct Summary<'a>(&'a [u8]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LENGTH: usize = 30;
        let start = &self.0[..self.0.len().min(LENGTH)];
        match start.first() {
            None => return f.write_str("<empty>"),
            Some(b'{') => f.write_str(&String::from_utf8_lossy(start))?,
            Some(_) => start.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?,
        }
        if self.0.len() > LENGTH { f.write_str(" ...") } else { Ok(()) }
    }
}
