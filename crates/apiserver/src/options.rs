//! Request options, from the query or, for deletions, the body.

use serde::Deserialize;
use serde_json::Value;

use crate::field::{Errors, Path, Reason};
use crate::json::JsonMut;
use crate::query::Query;
use crate::schema::FieldValidation;
use crate::selector::Selection;
use crate::status::{Named, Status};

/// The options of creates, updates and patches.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
}

/// The kind of options, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OptionsOf {
    Create,
    Update,
    Patch { apply: bool },
}

impl OptionsOf {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch { .. } => "PatchOptions",
        }
    }
}

const FIELD_MANAGER_LENGTH: usize = 128;

impl WriteOptions {
    pub(crate) fn parse(query: &Query<'_>, of: OptionsOf) -> Result<Self, Status> {
        let mut errors = Errors::default();
        let force = query.flag("force");
        let field_manager = query.get("fieldManager").unwrap_or("");
        match of {
            OptionsOf::Patch { apply: true } if field_manager.is_empty() => {
                errors.required(&Path::root("fieldManager"), "is required for apply patch");
            }
            OptionsOf::Patch { apply: false } if force.is_some() => {
                errors.forbidden(&Path::root("force"), "may not be specified for non-apply patch");
            }
            _ => {}
        }
        check_field_manager(field_manager, &mut errors);
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_validation = field_validation(query.get("fieldValidation").unwrap_or(""), &mut errors);
        refuse(of.name(), &errors)?;
        Ok(Self { dry_run, field_validation })
    }
}

fn refuse(options: &str, errors: &Errors) -> Result<(), Status> {
    let of = Named { group: "meta.k8s.io", resource: options };
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(of, "", errors)) }
}

fn check_field_manager(manager: &str, errors: &mut Errors) {
    let path = Path::root("fieldManager");
    if manager.len() > FIELD_MANAGER_LENGTH {
        let detail = format!("may not be more than {FIELD_MANAGER_LENGTH} bytes");
        errors.push(Reason::TooLong, &path, None, detail);
    }
    for (at, character) in manager.char_indices().filter(|(_, character)| character.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(character));
        errors.invalid(&path, manager, detail);
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Errors) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        errors.not_supported(&Path::root("dryRun"), Value::from(values.clone()), &["All"]);
    }
    !values.is_empty()
}

fn field_validation(value: &str, errors: &mut Errors) -> FieldValidation {
    FieldValidation::parse(value).unwrap_or_else(|| {
        let supported = ["", "Ignore", "Strict", "Warn"];
        errors.not_supported(&Path::root("fieldValidation"), value, &supported);
        FieldValidation::default()
    })
}

/// How a list relates to its resource version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Exact,
    NotOlderThan,
}

/// The options of lists, watches and collection deletions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub selection: Selection,
    pub bookmarks: bool,
    pub resource_version: String,
    pub version_match: Option<VersionMatch>,
    pub timeout_seconds: Option<i64>,
    pub limit: i64,
    pub continue_token: String,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query<'_>, namespace: Option<&str>, watch: bool) -> Result<Self, Status> {
        let text = |name: &str| query.get(name).unwrap_or("").to_string();
        let selection = Selection {
            namespace: namespace.map(Into::into),
            labels: query.get("labelSelector").map(Into::into),
            fields: query.get("fieldSelector").map(Into::into),
        };
        let mut options = Self {
            selection,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            resource_version: text("resourceVersion"),
            version_match: None,
            timeout_seconds: query.number("timeoutSeconds").map_err(Status::bad_request)?,
            limit: query.number("limit").map_err(Status::bad_request)?.unwrap_or(0),
            continue_token: text("continue"),
            send_initial_events: query.flag("sendInitialEvents"),
        };
        let matching = text("resourceVersionMatch");
        let errors = if watch { options.check_watch(&matching) } else { options.check_list(&matching) };
        refuse("ListOptions", &errors)?;
        options.version_match = match matching.as_str() {
            "Exact" => Some(VersionMatch::Exact),
            "NotOlderThan" => Some(VersionMatch::NotOlderThan),
            _ => None,
        };
        let is_old_style = matches!(options.resource_version.as_str(), "" | "0") && matching.is_empty();
        if watch && options.send_initial_events.is_none() && is_old_style {
            options.send_initial_events = Some(true);
            options.version_match = Some(VersionMatch::NotOlderThan);
        }
        Ok(options)
    }

    fn check_list(&self, matching: &str) -> Errors {
        let mut errors = Errors::default();
        let path = Path::root("resourceVersionMatch");
        if !matching.is_empty() {
            if self.resource_version.is_empty() {
                errors
                    .forbidden(&path, "resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !self.continue_token.is_empty() {
                errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                errors.not_supported(&path, matching, &["Exact", "NotOlderThan", ""]);
            }
            if matching == "Exact" && self.resource_version == "0" {
                errors.forbidden(
                    &path,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        if self.send_initial_events.is_some() {
            errors.forbidden(&Path::root("sendInitialEvents"), "sendInitialEvents is forbidden for list");
        }
        errors
    }

    fn check_watch(&self, matching: &str) -> Errors {
        let mut errors = Errors::default();
        let path = Path::root("resourceVersionMatch");
        if self.send_initial_events.is_some() && matching != "NotOlderThan" {
            errors
                .forbidden(&path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if !matching.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.forbidden(&path, why);
            }
            if matching != "NotOlderThan" {
                errors.not_supported(&path, matching, &["NotOlderThan"]);
            }
            if !self.continue_token.is_empty() {
                errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
            }
        }
        errors
    }
}

/// The propagation policy: what happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

/// The options of deletions.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation: Option<Propagation>,
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Adds the set fields to the options shown to others.
    pub(crate) fn write(&self, options: &mut Value) {
        if let Some(seconds) = self.grace_period_seconds {
            options.set("gracePeriodSeconds", seconds);
        }
        for (field, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(value) = value {
                options.object_mut("preconditions").set(field, value.as_str());
            }
        }
        if let Some(orphan) = self.orphan_dependents {
            options.set("orphanDependents", orphan);
        }
        if let Some(propagation) = &self.propagation {
            options.set("propagationPolicy", format!("{propagation:?}"));
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawDeleteOptions {
    grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// Parses the body's `DeleteOptions` or, without a body, the query.
    pub(crate) fn parse(body: Option<Value>, query: &Query<'_>) -> Result<Self, Status> {
        let written = match body {
            Some(body) => serde_json::from_value(body)
                .map_err(|why| Status::bad_request(format!("cannot read DeleteOptions: {why}")))?,
            None => RawDeleteOptions {
                grace_period_seconds: query.number("gracePeriodSeconds").map_err(Status::bad_request)?,
                preconditions: None,
                orphan_dependents: query.flag("orphanDependents"),
                propagation_policy: query.get("propagationPolicy").map(Into::into),
                dry_run: query.all("dryRun").map(Into::into).collect(),
            },
        };
        written.check()
    }
}

impl RawDeleteOptions {
    fn check(self) -> Result<DeleteOptions, Status> {
        let mut errors = Errors::default();
        let path = Path::root("propagationPolicy");
        if let (Some(_), Some(policy)) = (self.orphan_dependents, &self.propagation_policy) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.invalid(&path, policy.as_str(), detail);
        }
        let propagation = self.propagation_policy.and_then(|policy| {
            let known = match policy.as_str() {
                "Foreground" => Some(Propagation::Foreground),
                "Background" => Some(Propagation::Background),
                "Orphan" => Some(Propagation::Orphan),
                _ => None,
            };
            if known.is_none() {
                errors.not_supported(&path, policy, &["Foreground", "Background", "Orphan", "nil"]);
            }
            known
        });
        let dry_run = dry_run(self.dry_run.iter().map(String::as_str), &mut errors);
        refuse("DeleteOptions", &errors)?;
        let preconditions = self.preconditions.unwrap_or_default();
        Ok(DeleteOptions {
            grace_period_seconds: self.grace_period_seconds,
            uid: preconditions.uid,
            resource_version: preconditions.resource_version,
            orphan_dependents: self.orphan_dependents,
            propagation,
            dry_run,
        })
    }
}
