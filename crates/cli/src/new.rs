//! `setpoint new`: writes an operator project, and brings an existing one up to date.
//!
//! The projects are those of `setpoint-scaffold`; only the flags and the messages are here.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use setpoint_scaffold::{
    Description, KindDescription, Language, Project, Report, Scope, SetpointSource, kind_of_project,
};

/// The version of a new operator.
const VERSION: &str = "0.1.0";

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Name of the project, such as database-operator.
    #[arg(required_unless_present = "update", conflicts_with = "update")]
    name: Option<String>,
    /// Language of the operator.
    #[arg(long, default_value = "rust", value_name = "LANGUAGE")]
    lang: Lang,
    /// Kind of the custom resource [default: derived from the name].
    #[arg(long, conflicts_with = "update")]
    kind: Option<String>,
    /// API group of the custom resource.
    #[arg(long, default_value = "example.com")]
    group: String,
    /// Version of the custom resource.
    #[arg(long, default_value = "v1", value_name = "VERSION")]
    api_version: String,
    /// Plural of the kind [default: its English plural].
    #[arg(long, conflicts_with = "update")]
    plural: Option<String>,
    /// Make the custom resource cluster-scoped.
    #[arg(long, conflicts_with = "update")]
    cluster_scoped: bool,
    /// Image of the operator [default: NAME:0.1.0].
    #[arg(long, conflicts_with = "update")]
    image: Option<String>,
    /// Checkout of setpoint to build against, for Rust [default: the one this binary was built from; the published
    /// crates for a release].
    #[arg(long, value_name = "DIR", conflicts_with = "update")]
    setpoint_path: Option<PathBuf>,
    /// Bring the files of an existing project up to date with its setpoint.yaml and this version of setpoint. Changed
    /// files are left alone.
    #[arg(long)]
    update: bool,
    /// With --update: write nothing, and fail if something is not up to date.
    #[arg(long, requires = "update", conflicts_with = "name")]
    check: bool,
    #[command(flatten)]
    place: Place,
}

/// Where a project is, and what may happen to it.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Directory of the project [default: the name of a new project, otherwise the current directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Overwrite files that have been changed since they were generated.
    #[arg(long)]
    pub(crate) force: bool,
}

impl Place {
    /// Opens the project.
    pub(crate) fn project(&self) -> anyhow::Result<Project> {
        Ok(Project::open(self.directory.as_deref().unwrap_or(Path::new(".")))?)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "lowercase")]
enum Lang {
    Rust,
    Python,
    JavaScript,
    Shell,
    Helm,
    Ansible,
}

impl From<Lang> for Language {
    fn from(lang: Lang) -> Self {
        match lang {
            Lang::Rust => Self::Rust,
            Lang::Python => Self::Python,
            Lang::JavaScript => Self::JavaScript,
            Lang::Shell => Self::Shell,
            Lang::Helm => Self::Helm,
            Lang::Ansible => Self::Ansible,
        }
    }
}

pub(crate) fn run(arguments: New) -> anyhow::Result<()> {
    let New { place, update, check, .. } = &arguments;
    if *update {
        let project = place.project()?;
        return match check {
            true => ensure_current(&project.check()?),
            false => {
                announce(&project.update(place.force)?);
                Ok(())
            }
        };
    }
    let name = arguments.name.as_deref().context("NAME: expected")?;
    let directory = place.directory.clone().unwrap_or_else(|| PathBuf::from(name));
    let is_new = !directory.join(setpoint_scaffold::DESCRIPTION).exists();
    let (project, report) = Project::create(&directory, arguments.description(name)?, place.force)?;
    if !is_new {
        announce(&report);
        return Ok(());
    }
    let kind = &project.description().kinds[0];
    let shown = directory.display();
    eprintln!("Created {shown}, an operator for {} in {} files. Try:", kind.plural, report.created.len());
    eprintln!("  cd {shown} && make test");
    Ok(())
}

impl New {
    fn description(&self, name: &str) -> anyhow::Result<Description> {
        let language = Language::from(self.lang);
        let named = |name: &str| self.kind.clone().unwrap_or_else(|| kind_of_project(name));
        let mut kind = KindDescription::new(&named(name), &self.group, &self.api_version);
        if let Some(plural) = &self.plural {
            kind.plural.clone_from(plural);
        }
        if self.cluster_scoped {
            kind.scope = Scope::Cluster;
        }
        ensure!(
            self.setpoint_path.is_none() || language == Language::Rust,
            "--setpoint-path: expected only with --lang=rust"
        );
        ensure!(
            !(self.cluster_scoped && language == Language::Helm),
            "--cluster-scoped: expected a namespaced kind: a release is in the namespace of its object"
        );
        let setpoint = match language {
            Language::Rust => source(self.setpoint_path.as_deref())?,
            _ => SetpointSource::Version(env!("CARGO_PKG_VERSION").to_owned()),
        };
        Ok(Description {
            name: name.to_owned(),
            language,
            version: VERSION.to_owned(),
            image: self.image.clone().unwrap_or_else(|| format!("{name}:{VERSION}")),
            setpoint,
            kinds: vec![kind],
        })
    }
}

/// Where this binary was built. A release does not contain that, so that it is the same wherever it is built.
const BUILT_FROM: Option<&str> = match option_env!("SETPOINT_DIST") {
    Some(_) => None,
    None => Some(env!("CARGO_MANIFEST_DIR")),
};

/// Returns where the crates are: in a checkout, or published.
fn source(given: Option<&Path>) -> anyhow::Result<SetpointSource> {
    let is_checkout = |path: &Path| path.join("crates/setpoint/Cargo.toml").exists();
    let built_from = BUILT_FROM.map(|directory| Path::new(directory).join("../.."));
    let path = match given {
        Some(path) => {
            let shown = path.display();
            ensure!(is_checkout(path), "--setpoint-path: expected a checkout of setpoint, not {shown}");
            path
        }
        None => match built_from.as_deref().filter(|path| is_checkout(path)) {
            Some(path) => path,
            None => return Ok(SetpointSource::Version(env!("CARGO_PKG_VERSION").to_owned())),
        },
    };
    let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
    Ok(SetpointSource::Path(path))
}

/// Prints what an update has done.
pub(crate) fn announce(report: &Report) {
    let lists = [("created", &report.created), ("updated", &report.updated), ("removed", &report.removed)];
    for (what, paths) in lists {
        paths.iter().for_each(|path| eprintln!("{what} {path}"));
    }
    for path in &report.offered {
        eprintln!("left {path} alone, because you have changed it: what is new is in {path}.new");
    }
    for path in &report.orphaned {
        eprintln!("left {path} alone, because you have changed it: it is no longer generated");
    }
    for path in &report.absent {
        eprintln!("left out {path}, because you have deleted it: --force brings it back");
    }
    if report.is_empty() {
        eprintln!("everything is up to date");
    }
}

fn ensure_current(report: &Report) -> anyhow::Result<()> {
    let stale: Vec<&str> = [&report.created, &report.updated, &report.removed, &report.offered]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    if stale.is_empty() {
        return Ok(());
    }
    bail!("not up to date: {}. Run `setpoint new --update`", stale.join(", "))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn new(flags: &[&str]) -> New {
        let arguments = Arguments::try_parse_from(["setpoint", "new"].iter().chain(flags));
        let Command::New(new) = arguments.expect("valid flags").command else { panic!("another command") };
        *new
    }

    fn rejected(flags: &[&str]) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let place = format!("--directory={}", directory.path().join("x").display());
        let error = run(new(&[flags, &[&place]].concat())).expect_err("it is rejected");
        assert!(!directory.path().join("x").exists(), "nothing is written");
        format!("{error:#}")
    }

    #[test]
    fn invalid_names_are_rejected_with_the_flag() {
        let check = |flags: &[&str], expected: &str| {
            let error = rejected(flags);
            assert!(error.contains(expected), "{error}");
        };
        check(&["Web"], "NAME: expected up to 50 lower-case letters");
        check(&["../web"], "NAME: expected up to 50 lower-case letters");
        check(&["web", "--kind=shop"], "--kind: expected a name such as Database, not \"shop\"");
        check(&["web", "--group=example"], "--group: expected a domain such as example.com, not \"example\"");
        check(&["web", "--api-version=1"], "--api-version: expected a version such as v1");
        check(&["web", "--plural=Webs"], "--plural: expected lower-case letters");
        check(&["web", "--image=a b"], "--image: expected an image");
        check(&["web", "--setpoint-path=/"], "--setpoint-path: expected a checkout");
        check(&["web", "--lang=shell", "--setpoint-path=/"], "--setpoint-path: expected only with");
        check(&["web", "--lang=helm", "--cluster-scoped"], "--cluster-scoped: expected a namespaced kind");
    }

    #[test]
    fn a_generated_project_uses_the_given_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("db");
        let place = format!("--directory={}", target.display());
        let flags = ["database-operator", "--group=data.example.org", place.as_str()];
        run(new(&flags)).expect("written");
        let read = |path: &str| std::fs::read_to_string(target.join(path)).expect("a file");
        let manifest = read("Cargo.toml");
        assert!(manifest.contains("name = \"database-operator\""), "{manifest}");
        assert!(manifest.contains("/crates/sim\""), "{manifest}");
        let attribute =
            r#"#[kube(group = "data.example.org", version = "v1", kind = "Database", plural = "databases")]"#;
        assert!(read("src/database/v1.rs").contains(attribute));
        assert!(read("tests/operator/database.rs").contains("use database_operator::database::Database;"));
        run(new(&flags)).expect("again");
        run(new(&["--update", "--check", place.as_str()])).expect("up to date");
        std::fs::write(target.join("Makefile"), "mine").expect("a file");
        std::fs::remove_file(target.join(".setpoint/digests")).expect("removed");
        let error = run(new(&["--update", "--check", place.as_str()])).expect_err("unknown changes");
        assert!(error.to_string().starts_with("not up to date: Makefile. Run"), "{error}");
        let other = run(new(&["other", place.as_str()])).expect_err("another project");
        assert!(other.to_string().contains("has a project with the name database-operator"), "{other}");
    }

    #[test]
    fn an_update_takes_no_description() {
        let parses =
            |flags: &[&str]| Arguments::try_parse_from(["setpoint", "new"].iter().chain(flags)).is_ok();
        assert!(parses(&["--update"]) && parses(&["web"]));
        assert!(!parses(&[]) && !parses(&["web", "--update"]) && !parses(&["web", "--check"]));
    }
}
