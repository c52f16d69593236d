//! The commands: create a project, bring it up to date, add a kind, a version or webhooks.
//!
//! Invariants:
//! - The description is written before the files that follow from it, so that an interrupted command is completed by
//!   the next update.
//! - What cannot be rendered is not written at all.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::declared;
use crate::description::{DESCRIPTION, Description, KindDescription, Language, Scope, Webhook};
use crate::names::{self, Invalid};
use crate::record::{RECORD, Record, digest};
use crate::render::{Ownership, RenderError, Rendered, rendered};
use crate::templates::{CHART_DEFINITIONS, CHART_ROLE, CHARTS, DEFINITIONS, HOOKS, ROLE, ROLES};
use crate::update::{Mode, Place, Report, UNFINISHED, UpdateError, update};
use crate::versions::with_version;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name or another value is not valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The directory is not a project.
    #[error("{directory}: expected a project with a file {DESCRIPTION}: `setpoint new` writes one")]
    NoProject {
        /// The directory.
        directory: String,
    },
    /// The directory has something else in it.
    #[error("{directory} is not empty: choose another with --directory")]
    NotEmpty {
        /// The directory.
        directory: String,
    },
    /// The directory has another project in it.
    #[error(
        "{directory} has a project with {difference}: extend it with `setpoint add`, or choose another --directory"
    )]
    AnotherProject {
        /// The directory.
        directory: String,
        /// What differs.
        difference: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Update(#[from] UpdateError),
    /// A template is wrong.
    #[error(transparent)]
    Render(#[from] RenderError),
}

/// A kind to add.
#[derive(Clone, Debug)]
pub struct NewKind {
    /// The name of the kind.
    pub kind: String,
    /// The API group; that of the project's first kind if `None`.
    pub group: Option<String>,
    /// The version.
    pub version: String,
    /// The plural; derived from the kind if `None`.
    pub plural: Option<String>,
    /// Whether its objects are in namespaces.
    pub scope: Scope,
}

/// A version to add.
#[derive(Clone, Debug)]
pub struct NewVersion {
    /// The kind.
    pub kind: String,
    /// The name of the version.
    pub version: String,
    /// Whether objects are stored in it from now on.
    pub stored: bool,
}

/// A project in a directory.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    description: Description,
}

/// What may be in a directory before a project is written to it.
const ALLOWED: &[&str] = &[".git", ".gitignore", "LICENSE", "README.md"];

impl Project {
    /// Writes a project to a directory that does not exist, or is empty. If the directory has this project already, it
    /// is brought up to date.
    pub fn create(root: &Path, description: Description, force: bool) -> Result<(Self, Report), Error> {
        check_flags(&description)?;
        description.check()?;
        if root.join(DESCRIPTION).exists() {
            let project = Self::open(root)?;
            project.assert_is(&description)?;
            let report = project.update(force)?;
            return Ok((project, report));
        }
        if has_other_files(root)? {
            return Err(Error::NotEmpty { directory: root.display().to_string() });
        }
        let project = Self { root: root.to_owned(), description };
        let report = project.save(force)?;
        Ok((project, report))
    }

    /// Opens the project in a directory.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let missing = || Error::NoProject { directory: root.display().to_string() };
        if !root.is_dir() {
            return Err(missing());
        }
        let text = Place::existing(root)?.read(DESCRIPTION)?.ok_or_else(missing)?;
        Ok(Self { root: root.to_owned(), description: Description::parse(&text)? })
    }

    /// Returns the description.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Brings the files up to date. With `force`, files that the author has changed are overwritten.
    pub fn update(&self, force: bool) -> Result<Report, Error> {
        let files = self.files(force)?;
        Ok(update(&self.root, &files, Mode::Write { force })?)
    }

    /// Returns what an update would do, and does nothing.
    pub fn check(&self) -> Result<Report, Error> {
        let files = self.files(false)?;
        Ok(update(&self.root, &files, Mode::Check)?)
    }

    /// Adds a kind.
    pub fn add_kind(&mut self, new: NewKind, force: bool) -> Result<Report, Error> {
        names::kind("KIND", &new.kind)?;
        names::version("--api-version", &new.version)?;
        let group = match (new.group, self.description.kinds.first()) {
            (Some(group), _) => group,
            (None, Some(first)) => first.group.clone(),
            (None, None) => return Err(Invalid::new("--group", "a domain such as example.com", "").into()),
        };
        names::group("--group", &group)?;
        let mut kind = KindDescription::new(&new.kind, &group, &new.version);
        if let Some(plural) = new.plural {
            names::plural("--plural", &plural)?;
            kind.plural = plural;
        }
        kind.scope = new.scope;
        self.changed(force, |description| {
            description.kinds.push(kind);
            Ok(())
        })
    }

    /// Adds a version to a kind: it starts as a copy of the stored one.
    pub fn add_version(&mut self, new: NewVersion, force: bool) -> Result<Report, Error> {
        names::version("VERSION", &new.version)?;
        let kind = self.kind(&new.kind)?;
        if kind.versions.contains(&new.version) {
            let expected = format!("a version that {} does not have yet", kind.kind);
            return Err(Invalid::new("VERSION", expected, &new.version).into());
        }
        self.add_to_definition(&kind, &new)?;
        self.changed(force, |description| {
            if let Some(kind) = description.kind_mut(&new.kind) {
                kind.versions.push(new.version.clone());
                if new.stored {
                    kind.stored = new.version.clone();
                }
            }
            Ok(())
        })
    }

    /// Adds admission webhooks to a kind.
    pub fn add_webhooks(
        &mut self,
        kind: &str,
        webhooks: BTreeSet<Webhook>,
        force: bool,
    ) -> Result<Report, Error> {
        if self.description.language != Language::Rust {
            let language = self.description.language.name();
            return Err(Invalid::new("setpoint add webhook", "a project in Rust", language).into());
        }
        let name = self.kind(kind)?.kind;
        self.changed(force, |description| {
            if let Some(kind) = description.kind_mut(&name) {
                kind.webhooks.extend(webhooks);
            }
            Ok(())
        })
    }

    fn kind(&self, name: &str) -> Result<KindDescription, Invalid> {
        let known: Vec<&str> = self.description.kinds.iter().map(|kind| kind.kind.as_str()).collect();
        let expected = || format!("one of the project's kinds, {}", known.join(", "));
        self.description.kind(name).cloned().ok_or_else(|| Invalid::new("KIND", expected(), name))
    }

    /// Changes the description and writes what follows. If that is not possible, nothing has changed.
    fn changed(
        &mut self,
        force: bool,
        change: impl FnOnce(&mut Description) -> Result<(), Invalid>,
    ) -> Result<Report, Error> {
        let mut description = self.description.clone();
        change(&mut description)?;
        description.check()?;
        let next = Self { root: self.root.clone(), description };
        let report = next.save(force)?;
        *self = next;
        Ok(report)
    }

    fn save(&self, force: bool) -> Result<Report, Error> {
        // Whatever cannot be rendered is found before anything is written.
        rendered(&self.description)?;
        Place::new(&self.root)?.write(DESCRIPTION, &self.description.to_yaml(), false)?;
        self.update(force)
    }

    fn assert_is(&self, wanted: &Description) -> Result<(), Error> {
        let there = &self.description;
        let difference = if there.name != wanted.name {
            format!("the name {}", there.name)
        } else if there.language != wanted.language {
            format!("the language {}", there.language)
        } else if there.kinds.first().map(|kind| (&kind.kind, &kind.group))
            != wanted.kinds.first().map(|kind| (&kind.kind, &kind.group))
        {
            let first = there.kinds.first();
            first.map_or("no kinds".to_owned(), |kind| format!("the kind {} of {}", kind.kind, kind.group))
        } else {
            return Ok(());
        };
        Err(Error::AnotherProject { directory: self.root.display().to_string(), difference })
    }

    /// Adds a version to a CRD that the author has changed. One that is unchanged is rendered again.
    fn add_to_definition(&self, kind: &KindDescription, new: &NewVersion) -> Result<(), Error> {
        if self.description.language == Language::Rust {
            // It comes from the code.
            return Ok(());
        }
        let path = format!("{DEFINITIONS}/{}_{}.yaml", kind.group, kind.plural);
        let there = There::new(&self.root)?;
        let Some(text) = there.changed(&path)? else { return Ok(()) };
        match with_version(&text, &kind.stored, &new.version, new.stored) {
            Some(changed) => Ok(there.place.write(&path, &changed, false)?),
            None => {
                let expected = format!("a list of versions with {}, one item after the other", kind.stored);
                Err(Invalid::new(&format!("{path}: spec.versions"), expected, "another layout").into())
            }
        }
    }

    /// Returns every file of the project: rendered from templates, or derived from other files.
    fn files(&self, force: bool) -> Result<Vec<Rendered>, Error> {
        let mut files = rendered(&self.description)?;
        let there = There::new(&self.root)?;
        let declaring = self.declaring(&there, &files, force)?;
        let rules = declared::rules(&self.description, declaring.iter().map(String::as_str)).yaml();
        if let Some(role) = files.iter_mut().find(|file| file.path == ROLE) {
            role.content.push_str(&rules);
        }
        let mut derived = Vec::new();
        if let Some(content) = there.after(ROLE, &files, force)? {
            derived.push(copy(CHART_ROLE.to_owned(), content));
        }
        for path in there.all(DEFINITIONS, &[".yaml"], &files)? {
            if let (Some(content), Some(name)) = (there.after(&path, &files, force)?, path.rsplit('/').next())
            {
                derived.push(copy(format!("{CHART_DEFINITIONS}/{name}"), content));
            }
        }
        files.extend(derived);
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    /// Returns the contents of the files that declare what the operator needs.
    fn declaring(&self, there: &There, files: &[Rendered], force: bool) -> Result<Vec<String>, Error> {
        let (directory, endings): (_, &[&str]) = match self.description.language {
            Language::Rust => return Ok(Vec::new()),
            Language::Python | Language::JavaScript | Language::Shell => (HOOKS, &[".yaml", ".yml"]),
            Language::Helm => (CHARTS, &[".yaml", ".yml", ".tpl"]),
            Language::Ansible => (ROLES, &[".yaml", ".yml"]),
        };
        let paths = there.all(directory, endings, files)?;
        let mut contents = Vec::new();
        for path in paths {
            contents.extend(there.after(&path, files, force)?);
        }
        Ok(contents)
    }
}

/// Checks what flags have set, so that errors name them.
fn check_flags(description: &Description) -> Result<(), Invalid> {
    names::project("NAME", &description.name, description.language == Language::Rust)?;
    names::image("--image", &description.image)?;
    for kind in &description.kinds {
        names::kind("--kind", &kind.kind)?;
        names::group("--group", &kind.group)?;
        names::plural("--plural", &kind.plural)?;
        kind.versions.iter().try_for_each(|version| names::version("--api-version", version))?;
    }
    Ok(())
}

fn copy(path: String, content: String) -> Rendered {
    Rendered { path, content, executable: false, ownership: Ownership::Generated }
}

fn has_other_files(root: &Path) -> Result<bool, Error> {
    let failed = |source| UpdateError::Io { attempted: "read", path: root.display().to_string(), source };
    match fs::read_dir(root) {
        Ok(entries) => {
            let names: Result<Vec<_>, _> =
                entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
            let names = names.map_err(failed)?;
            let is_allowed = |name: &OsString| {
                ALLOWED.iter().any(|allowed| name == *allowed) || name.to_string_lossy().ends_with(UNFINISHED)
            };
            Ok(!names.iter().all(is_allowed))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error).into()),
    }
}

/// What is in the project now.
struct There {
    place: Place,
    record: Record,
}

impl There {
    fn new(root: &Path) -> Result<Self, UpdateError> {
        let place = Place::existing(root)?;
        let record = place.read(RECORD)?.map(|text| Record::parse(&text)).unwrap_or_default();
        Ok(Self { place, record })
    }

    /// Returns the content of a file if the author has changed it.
    fn changed(&self, path: &str) -> Result<Option<String>, UpdateError> {
        let text = self.place.read(path)?;
        Ok(text.filter(|text| self.record.0.get(path) != Some(&digest(text))))
    }

    /// Returns what a file will contain after an update.
    fn after(&self, path: &str, files: &[Rendered], force: bool) -> Result<Option<String>, UpdateError> {
        let new = files.iter().find(|file| file.path == path).map(|file| file.content.clone());
        let there = self.place.read(path)?;
        Ok(match (new, there) {
            (Some(new), _) if force => Some(new),
            (Some(new), Some(there)) if self.record.0.get(path) == Some(&digest(&there)) => Some(new),
            (_, Some(there)) => Some(there),
            // A file that the author has deleted stays away.
            (Some(_), None) if self.record.0.contains_key(path) => None,
            (new, None) => new,
        })
    }

    /// Returns the files that will be in a directory after an update.
    fn all(
        &self,
        directory: &str,
        endings: &[&str],
        files: &[Rendered],
    ) -> Result<BTreeSet<String>, UpdateError> {
        let is_in = |path: &str| {
            path.starts_with(&format!("{directory}/")) && endings.iter().any(|ending| path.ends_with(ending))
        };
        let mut paths: BTreeSet<String> = self.place.list(directory, endings)?.into_iter().collect();
        let new: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let mut kept = BTreeSet::new();
        for path in paths {
            let goes = !new.contains(path.as_str())
                && self.record.0.contains_key(&path)
                && self.changed(&path)?.is_none();
            if !goes {
                kept.insert(path);
            }
        }
        paths = kept;
        paths.extend(files.iter().map(|file| file.path.clone()).filter(|path| is_in(path)));
        Ok(paths)
    }
}
