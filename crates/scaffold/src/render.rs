//! Fills in the templates: from a description to the files of a project.
//!
//! Templates use `@{…}@` for values and lines that start with `%%` for conditions and loops: neither occurs in the
//! languages of the generated files. A name that a template does not know is an error.

use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value, context};
use serde::Serialize;

use crate::description::{Description, KindDescription, Language, Scope, SetpointSource, Webhook};
use crate::names;
use crate::templates::{Per, TEMPLATES, Template};

/// A file of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Its path in the project.
    pub path: String,
    /// Its content.
    pub content: String,
    /// Whether it is a program.
    pub executable: bool,
    /// Whose it is.
    pub(crate) ownership: Ownership,
}

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// It follows from the description. An author who has changed it is offered what is new.
    Generated,
    /// A place to start: once the author has changed it, it is theirs.
    Starter,
}

/// A template that could not be rendered: a mistake in a template, not in a project.
#[derive(Debug, thiserror::Error)]
#[error("cannot render {path}")]
pub struct RenderError {
    /// The path of the file.
    pub path: String,
    /// Why it failed.
    #[source]
    pub source: minijinja::Error,
}

/// The manifest of the workspace, for the versions of the crates that a project depends on.
const WORKSPACE: &str = include_str!("../../../Cargo.toml");
/// The crates that a project in Rust depends on.
const DEPENDENCIES: &[&str] = &["anyhow", "kube", "schemars"];

/// What templates know about the project.
#[derive(Serialize)]
struct ProjectValues<'a> {
    name: &'a str,
    title: String,
    library: String,
    namespace: String,
    language: &'static str,
    is_hook: bool,
    version: &'a str,
    image: &'a str,
    image_repository: &'a str,
    image_tag: &'a str,
    setpoint_version: &'static str,
    setpoint: String,
    setpoint_webhook: String,
    setpoint_sim: String,
    k8s_openapi_version: &'static str,
    rust_version: &'static str,
    edition: &'static str,
    has_webhooks: bool,
    has_admission: bool,
    has_conversion: bool,
    kinds: Vec<KindValues<'a>>,
}

/// What templates know about a kind.
#[derive(Clone, Serialize)]
struct KindValues<'a> {
    kind: &'a str,
    singular: String,
    plural: &'a str,
    group: &'a str,
    module: String,
    is_namespaced: bool,
    scope: &'static str,
    stored: &'a str,
    api_version: String,
    versions: Vec<VersionValues<'a>>,
    /// In the order in which the framework writes them into a CRD.
    crd_versions: Vec<VersionValues<'a>>,
    has_webhooks: bool,
    has_admission: bool,
    has_defaulting: bool,
    has_validation: bool,
    has_conversion: bool,
}

/// What templates know about a version.
#[derive(Clone, Serialize)]
struct VersionValues<'a> {
    name: &'a str,
    is_stored: bool,
    api_version: String,
}

impl<'a> ProjectValues<'a> {
    fn of(description: &'a Description) -> Self {
        let kinds: Vec<KindValues<'_>> = description.kinds.iter().map(KindValues::of).collect();
        let (image_repository, image_tag) = names::repository_and_tag(&description.image);
        let title = names::camel(&description.name);
        let is_rust = description.language == Language::Rust;
        Self {
            name: &description.name,
            title: names::snake(&title).split('_').map(names::camel).collect::<Vec<_>>().join(" "),
            library: description.name.replace('-', "_"),
            namespace: format!("{}-system", description.name),
            language: description.language.name(),
            is_hook: description.language.is_hook(),
            version: &description.version,
            image: &description.image,
            image_repository,
            image_tag,
            setpoint_version: env!("CARGO_PKG_VERSION"),
            setpoint: dependency(&description.setpoint, "setpoint", ""),
            setpoint_webhook: dependency(&description.setpoint, "setpoint", ", features = [\"webhook\"]"),
            setpoint_sim: dependency(&description.setpoint, "sim", ""),
            k8s_openapi_version: requirement("k8s-openapi").split('"').nth(1).unwrap_or_default(),
            rust_version: env!("CARGO_PKG_RUST_VERSION"),
            edition: "2024",
            has_webhooks: is_rust && kinds.iter().any(|kind| kind.has_webhooks),
            has_admission: is_rust && kinds.iter().any(|kind| kind.has_admission),
            has_conversion: is_rust && kinds.iter().any(|kind| kind.has_conversion),
            kinds,
        }
    }
}

impl<'a> KindValues<'a> {
    fn of(kind: &'a KindDescription) -> Self {
        let api_version = |version: &str| format!("{}/{version}", kind.group);
        let values = |version: &'a String| VersionValues {
            name: version,
            is_stored: *version == kind.stored,
            api_version: api_version(version),
        };
        let versions: Vec<VersionValues<'_>> = kind.versions.iter().map(values).collect();
        let (stored, served): (Vec<_>, Vec<_>) = versions.iter().cloned().partition(|one| one.is_stored);
        Self {
            crd_versions: stored.into_iter().chain(served.into_iter().rev()).collect(),
            kind: &kind.kind,
            singular: kind.kind.to_lowercase(),
            plural: &kind.plural,
            group: &kind.group,
            module: names::module(&kind.kind),
            is_namespaced: kind.scope == Scope::Namespaced,
            scope: if kind.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" },
            stored: &kind.stored,
            api_version: api_version(&kind.stored),
            versions,
            has_webhooks: kind.has_webhooks(),
            has_admission: !kind.webhooks.is_empty(),
            has_defaulting: kind.webhooks.contains(&Webhook::Defaulting),
            has_validation: kind.webhooks.contains(&Webhook::Validation),
            has_conversion: kind.versions.len() > 1,
        }
    }
}

/// Returns a dependency on a crate of setpoint, as in a manifest.
fn dependency(source: &SetpointSource, folder: &str, more: &str) -> String {
    match source {
        SetpointSource::Version(version) => format!("{{ version = {version:?}{more} }}"),
        SetpointSource::Path(checkout) => {
            let path: &Path = &checkout.join("crates").join(folder);
            format!("{{ path = {:?}{more} }}", path.display().to_string())
        }
    }
}

/// Returns what the manifest of the workspace requires of a crate.
fn requirement(name: &str) -> &'static str {
    let of_crate = |line: &&str| line.split_once(' ').is_some_and(|(key, _)| key == name);
    let line = WORKSPACE.lines().find(of_crate).and_then(|line| line.split_once(" = "));
    line.map_or("\"*\"", |(_, requirement)| requirement)
}

/// Returns the dependencies by name, as in the manifest of the workspace.
fn dependencies() -> Value {
    Value::from_pairs(DEPENDENCIES.iter().map(|name| (*name, requirement(name))))
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.variable_delimiters("@{", "}@").block_delimiters("@%", "%@").comment_delimiters("@#", "#@");
    let syntax = syntax.line_statement_prefix("%%").keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the delimiters differ"));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
}

/// Renders every file of a project. The same description gives the same files.
pub fn rendered(description: &Description) -> Result<Vec<Rendered>, RenderError> {
    let environment = environment();
    let project = ProjectValues::of(description);
    let (dependencies, of_project) = (dependencies(), Value::from(Serde(&project)));
    let kinds: Vec<Value> = project.kinds.iter().map(|kind| Value::from(Serde(kind))).collect();
    let mut files = Vec::new();
    for template in TEMPLATES.iter().filter(|template| (template.when)(description)) {
        let values = |kind: Value, version: Value| {
            context! {
                project => of_project.clone(), kinds => kinds.clone(), dependencies => dependencies.clone(), kind, version
            }
        };
        match template.per {
            Per::Project => {
                files.push(fill(&environment, template, values(Value::UNDEFINED, Value::UNDEFINED))?)
            }
            Per::Kind(when) => {
                for (kind, _) in kinds.iter().zip(&description.kinds).filter(|(_, kind)| when(kind)) {
                    files.push(fill(&environment, template, values(kind.clone(), Value::UNDEFINED))?);
                }
            }
            Per::Version(when) => {
                for ((kind, of_kind), described) in project.kinds.iter().zip(&kinds).zip(&description.kinds) {
                    for version in kind.versions.iter().filter(|version| when(described, version.name)) {
                        let version = Value::from(Serde(version));
                        files.push(fill(&environment, template, values(of_kind.clone(), version))?);
                    }
                }
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn fill(environment: &Environment<'_>, template: &Template, values: Value) -> Result<Rendered, RenderError> {
    let failed = |source| RenderError { path: template.path.to_owned(), source };
    Ok(Rendered {
        path: environment.render_str(template.path, values.clone()).map_err(failed)?,
        content: environment.render_str(template.text, values).map_err(failed)?,
        executable: template.executable,
        ownership: template.ownership,
    })
}
