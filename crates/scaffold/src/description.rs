//! `setpoint.yaml`: what a project consists of. Every generated file follows from it.
//!
//! ```yaml
//! apiVersion: setpoint.dev/v1alpha1
//! kind: Project
//! metadata: {name: database-operator}
//! spec:
//!   language: rust
//!   version: 0.1.0
//!   image: database-operator:0.1.0
//!   setpoint: {version: 0.2.0}
//!   kinds:
//!     - kind: Database
//!       group: example.com
//!       plural: databases
//!       scope: Namespaced
//!       versions: [v1, v2]
//!       stored: v2
//!       webhooks: [defaulting, validation]
//! ```
//!
//! Authors may edit it, so everything in it is checked when it is read.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{self, Invalid};

/// The name of the file.
pub const DESCRIPTION: &str = "setpoint.yaml";
const API_VERSION: &str = "setpoint.dev/v1alpha1";
const KIND: &str = "Project";
/// The maximum number of kinds of a project, and of versions of a kind. Each is a handful of files.
const MOST_KINDS: usize = 64;
const MOST_VERSIONS: usize = 16;

/// The description of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name of the project, of its objects in a cluster, and of its crate.
    pub name: String,
    /// The language of the operator's logic.
    pub language: Language,
    /// The version of the operator, as in the image and the bundle.
    pub version: String,
    /// The operator's container image.
    pub image: String,
    /// Where setpoint comes from.
    pub setpoint: SetpointSource,
    /// The kinds that the operator reconciles, in the order in which they were added.
    pub kinds: Vec<KindDescription>,
}

/// The language of an operator's logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// A program that uses the framework.
    Rust,
    /// A hook in Python.
    Python,
    /// A hook in JavaScript, for Node.js.
    JavaScript,
    /// A hook in shell script, with jq.
    Shell,
    /// A Helm chart for each kind.
    Helm,
    /// An Ansible role for each kind.
    Ansible,
}

/// Where setpoint comes from: the crates of a project in Rust, and the version of the image that runs others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum SetpointSource {
    /// A published version.
    Version(String),
    /// A checkout.
    Path(PathBuf),
}

/// A kind that the operator reconciles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindDescription {
    /// The name of the kind.
    pub kind: String,
    /// Its API group.
    pub group: String,
    /// Its plural, as in URLs.
    pub plural: String,
    /// Whether its objects are in namespaces.
    #[serde(default)]
    pub scope: Scope,
    /// The served versions.
    pub versions: Vec<String>,
    /// The version in which objects are stored, and which the operator reconciles.
    pub stored: String,
    /// The admission webhooks of the kind.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub webhooks: BTreeSet<Webhook>,
}

/// Whether the objects of a kind are in namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Each object is in a namespace.
    #[default]
    Namespaced,
    /// Objects belong to the cluster.
    Cluster,
}

/// An admission webhook of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Webhook {
    /// Sets defaults.
    Defaulting,
    /// Rejects invalid objects.
    Validation,
}

/// The file, in the form of a Kubernetes object.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    language: Language,
    version: String,
    image: String,
    setpoint: SetpointSource,
    #[serde(default)]
    kinds: Vec<KindDescription>,
}

const HEADER: &str = "\
# What this project consists of. `setpoint add` extends it, and `setpoint new --update` brings generated files up to date
# with it.
";

impl Description {
    /// Reads the file.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let document: Document = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.to_string();
            Invalid::new(DESCRIPTION, "the description of a project", line.lines().next().unwrap_or_default())
        })?;
        let fixed = [("apiVersion", API_VERSION, &document.api_version), ("kind", KIND, &document.kind)];
        for (field, expected, given) in fixed {
            if given != expected {
                return Err(Invalid::new(&format!("{DESCRIPTION}: {field}"), expected, given));
            }
        }
        let Document { metadata, spec, .. } = document;
        let Spec { language, version, image, setpoint, kinds } = spec;
        let description = Self { name: metadata.name, language, version, image, setpoint, kinds };
        description
            .check()
            .map_err(|error| Invalid { field: format!("{DESCRIPTION}: {}", error.field), ..error })?;
        Ok(description)
    }

    /// Returns the text of the file.
    pub fn to_yaml(&self) -> String {
        let document = Document {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata: Metadata { name: self.name.clone() },
            spec: Spec {
                language: self.language,
                version: self.version.clone(),
                image: self.image.clone(),
                setpoint: self.setpoint.clone(),
                kinds: self.kinds.clone(),
            },
        };
        let yaml = serde_saphyr::to_string(&document).expect("names and numbers can be written as YAML");
        format!("{HEADER}{yaml}")
    }

    /// Returns the kind with this name, without regard to case.
    pub fn kind(&self, name: &str) -> Option<&KindDescription> {
        self.kinds.iter().find(|kind| kind.kind.eq_ignore_ascii_case(name))
    }

    pub(crate) fn kind_mut(&mut self, name: &str) -> Option<&mut KindDescription> {
        self.kinds.iter_mut().find(|kind| kind.kind.eq_ignore_ascii_case(name))
    }

    /// Whether the operator serves webhooks: for admission, or to convert between versions.
    pub fn serves_webhooks(&self) -> bool {
        self.language == Language::Rust && self.kinds.iter().any(KindDescription::has_webhooks)
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        names::project("metadata.name", &self.name, self.language == Language::Rust)?;
        names::image("spec.image", &self.image)?;
        semver("spec.version", &self.version)?;
        if let SetpointSource::Version(version) = &self.setpoint {
            semver("spec.setpoint.version", version)?;
        }
        if self.kinds.len() > MOST_KINDS {
            let count = self.kinds.len().to_string();
            return Err(Invalid::new("spec.kinds", format!("at most {MOST_KINDS}"), &count));
        }
        for (nth, kind) in self.kinds.iter().enumerate() {
            self.check_kind(nth, kind).map_err(|error| {
                let field = format!("spec.kinds[{nth}].{}", error.field);
                Invalid { field, ..error }
            })?;
        }
        Ok(())
    }

    fn check_kind(&self, nth: usize, kind: &KindDescription) -> Result<(), Invalid> {
        kind.check()?;
        let others = &self.kinds[..nth];
        if others.iter().any(|other| names::module(&other.kind) == names::module(&kind.kind)) {
            return Err(Invalid::new("kind", "a kind that the project does not have yet", &kind.kind));
        }
        if others.iter().any(|other| (&other.plural, &other.group) == (&kind.plural, &kind.group)) {
            return Err(Invalid::new("plural", "one that no other kind of the group has", &kind.plural));
        }
        if !kind.webhooks.is_empty() && self.language != Language::Rust {
            let given = format!("{:?}", kind.webhooks).to_lowercase();
            return Err(Invalid::new("webhooks", "none: only projects in Rust serve webhooks", &given));
        }
        Ok(())
    }
}

impl KindDescription {
    /// Returns `kind` with a single version, and the plural that follows from it.
    pub fn new(kind: &str, group: &str, version: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            group: group.to_owned(),
            plural: crate::plural(kind),
            scope: Scope::Namespaced,
            versions: vec![version.to_owned()],
            stored: version.to_owned(),
            webhooks: BTreeSet::new(),
        }
    }

    /// Whether the API server calls the operator for this kind.
    pub fn has_webhooks(&self) -> bool {
        !self.webhooks.is_empty() || self.versions.len() > 1
    }

    fn check(&self) -> Result<(), Invalid> {
        names::kind("kind", &self.kind)?;
        names::group("group", &self.group)?;
        names::plural("plural", &self.plural)?;
        for (nth, version) in self.versions.iter().enumerate() {
            names::version(&format!("versions[{nth}]"), version)?;
            if self.versions[..nth].contains(version) {
                return Err(Invalid::new(
                    &format!("versions[{nth}]"),
                    "a version that is not there yet",
                    version,
                ));
            }
        }
        if self.versions.len() > MOST_VERSIONS {
            let count = self.versions.len().to_string();
            return Err(Invalid::new("versions", format!("at most {MOST_VERSIONS}"), &count));
        }
        match self.versions.contains(&self.stored) {
            true => Ok(()),
            false => Err(Invalid::new("stored", "one of the versions", &self.stored)),
        }
    }
}

pub(crate) fn semver(field: &str, version: &str) -> Result<(), Invalid> {
    match semver::Version::parse(version) {
        Ok(_) => Ok(()),
        Err(_) => Err(Invalid::new(field, "a semantic version such as 0.1.0", version)),
    }
}

impl Language {
    /// All languages.
    pub const ALL: [Self; 6] =
        [Self::Rust, Self::Python, Self::JavaScript, Self::Shell, Self::Helm, Self::Ansible];

    /// Returns the name, as in the description.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::Shell => "shell",
            Self::Helm => "helm",
            Self::Ansible => "ansible",
        }
    }

    /// Whether the logic is a hook: a program that `setpoint operator run` calls.
    pub fn is_hook(self) -> bool {
        matches!(self, Self::Python | Self::JavaScript | Self::Shell)
    }
}

impl Display for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Language {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|language| language.name() == text);
        known.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|language| language.name()).collect();
            Invalid::new("--lang", format!("one of {}", names.join(", ")), text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description {
            name: "shop-operator".into(),
            language: Language::Rust,
            version: "0.1.0".into(),
            image: "shop-operator:0.1.0".into(),
            setpoint: SetpointSource::Version("0.2.0".into()),
            kinds: vec![KindDescription::new("Shop", "example.com", "v1")],
        }
    }

    #[test]
    fn a_description_survives_being_written_and_read() {
        let mut described = description();
        described.kinds[0].versions.push("v2".into());
        described.kinds[0].webhooks = [Webhook::Validation, Webhook::Defaulting].into();
        described.setpoint = SetpointSource::Path("/a path/with \"quotes\"".into());
        assert_eq!(Description::parse(&described.to_yaml()), Ok(described));
    }

    #[test]
    fn mistakes_are_reported_with_the_field() {
        let check = |from: &str, to: &str, expected: &str| {
            let text = description().to_yaml().replace(from, to);
            let error = Description::parse(&text).expect_err(expected).to_string();
            assert!(error.starts_with(&format!("{DESCRIPTION}: ")) && error.contains(expected), "{error}");
        };
        check("kind: Project", "kind: Projekt", "kind: expected Project, not \"Projekt\"");
        check("name: shop-operator", "name: ../shop", "metadata.name: expected up to 50");
        check("plural: shops", "plural: ../shops", "spec.kinds[0].plural: expected lower-case");
        check("stored: v1", "stored: v2", "spec.kinds[0].stored: expected one of the versions");
        check(
            "- v1",
            "- v1\n    - v1",
            "spec.kinds[0].versions[1]: expected a version that is not there yet",
        );
        check("language: rust", "language: cobol", "expected the description of a project");
        check("0.2.0", "two", "spec.setpoint.version: expected a semantic version");
        check("  kinds:", "  types:", "expected the description of a project");
    }

    #[test]
    fn webhooks_are_served_by_rust_only() {
        let mut described = description();
        assert!(!described.serves_webhooks());
        described.kinds[0].webhooks = [Webhook::Validation].into();
        assert!(described.serves_webhooks() && described.check().is_ok());
        described.language = Language::Python;
        let error = described.check().expect_err("no webhooks").to_string();
        assert!(error.contains("spec.kinds[0].webhooks: expected none"), "{error}");
    }
}
