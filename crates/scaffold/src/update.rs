//! Writes generated files, and leaves alone what the author has changed.
//!
//! What happens to a file depends on three digests: of the newly generated content, of the content generated last time
//! (the record), and of the file on disk.
//!
//! | On disk | Action |
//! |---|---|
//! | nothing, and it was never generated | It is written |
//! | nothing, but it was generated once | The author has deleted it: it stays away |
//! | the new content | Nothing |
//! | the content of last time | It is updated |
//! | something else, and the generated file is as before | It is the author's. Nothing |
//! | something else, and the generated file is new | The new one is written beside it, as `FILE.new`, once |
//!
//! A file that is the author's from the start, a starter, is never offered again. With `force`, everything that is
//! generated is written.
//!
//! Invariants:
//! - A file is written under a temporary name and renamed, so it is never half-written.
//! - The record is written last, so the next run after an interruption skips files that are already up to date.
//! - No path leaves the project: not in its text, and not through a symbolic link.

use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use crate::record::{RECORD, Record, digest};
use crate::render::{Ownership, Rendered};

/// The largest file that is compared. Generated files have a few kilobytes.
const LARGEST: u64 = 4 << 20;
/// How deep, and how many files, a listing goes.
const DEEPEST: usize = 8;
const MOST_FILES: usize = 2_000;
/// The ending of files that are being written.
pub(crate) const UNFINISHED: &str = ".setpoint-tmp";
/// The ending of generated files beside changed ones.
const OFFERED: &str = ".new";

/// What a run has done. Paths are relative to the project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// New files.
    pub created: Vec<String>,
    /// Files that the author had not changed, and that have new content.
    pub updated: Vec<String>,
    /// Files that are no longer generated.
    pub removed: Vec<String>,
    /// Changed files for which there is something new: it is in the file with the ending `.new`.
    pub offered: Vec<String>,
    /// Files that the author has deleted, and that stay away.
    pub absent: Vec<String>,
    /// Changed files that are no longer generated.
    pub orphaned: Vec<String>,
}

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// An operation on a file failed.
    #[error("cannot {attempted} {path}")]
    Io {
        /// What was attempted.
        attempted: &'static str,
        /// The file.
        path: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A path of the project leads out of it, or could.
    #[error("{path}: expected a {expected} in the project, found a symbolic link or something else")]
    Outside {
        /// The path.
        path: String,
        /// What was expected there.
        expected: &'static str,
    },
    /// There are too many files.
    #[error("{path}: expected at most 2,000 files")]
    TooMany {
        /// The directory.
        path: String,
    },
    /// A file is too large to be compared.
    #[error("{path}: expected a text file of at most 4 MiB")]
    TooLarge {
        /// The file.
        path: String,
    },
}

impl Report {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.updated.is_empty()
            && self.removed.is_empty()
            && self.offered.is_empty()
    }
}

/// Whether a run writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It only reports.
    Check,
    /// It writes, and with `force` it overwrites what the author has changed.
    Write { force: bool },
}

/// What there is to do for a file.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Create,
    Update,
    Offer,
    Absent,
    /// It is up to date, or the author has changed it.
    Nothing,
}

fn action(
    generated: &str,
    last: Option<&String>,
    there: Option<&str>,
    ownership: Ownership,
    force: bool,
) -> Action {
    let is_last = |digest: &str| last.is_some_and(|last| last == digest);
    match there {
        Some(there) if there == generated => Action::Nothing,
        Some(there) if force || is_last(there) => Action::Update,
        Some(_) if is_last(generated) || ownership == Ownership::Starter => Action::Nothing,
        Some(_) => Action::Offer,
        None if force || last.is_none() => Action::Create,
        None => Action::Absent,
    }
}

/// Brings the files of a project up to date. `root` is created if it does not exist.
pub(crate) fn update(root: &Path, rendered: &[Rendered], mode: Mode) -> Result<Report, UpdateError> {
    let place = match mode {
        Mode::Check => Place::existing(root)?,
        Mode::Write { .. } => Place::new(root)?,
    };
    let force = mode == Mode::Write { force: true };
    let known = place.read(RECORD)?.map(|text| Record::parse(&text)).unwrap_or_default();
    // Everything is read before anything is written.
    let (actions, record) = actions(&place, rendered, &known, force)?;
    let mut report = Report::default();
    let mut removed = Vec::new();
    for (path, last) in known.0.iter().filter(|(path, _)| !record.0.contains_key(*path)) {
        match place.read(path)? {
            Some(text) if force || digest(&text) == *last => removed.push(path),
            Some(_) => report.orphaned.push(path.clone()),
            None => {}
        }
    }
    let writes = matches!(mode, Mode::Write { .. });
    for (file, action) in actions {
        let (list, ending) = match action {
            Action::Nothing => continue,
            Action::Absent => {
                report.absent.push(file.path.clone());
                continue;
            }
            Action::Create => (&mut report.created, ""),
            Action::Update => (&mut report.updated, ""),
            Action::Offer => (&mut report.offered, OFFERED),
        };
        list.push(file.path.clone());
        if writes {
            place.write(&format!("{}{ending}", file.path), &file.content, file.executable)?;
        }
    }
    for path in removed {
        report.removed.push(path.clone());
        if writes {
            place.remove(path)?;
        }
    }
    if writes && record != known {
        place.write(RECORD, &record.text(), false)?;
    }
    Ok(report)
}

/// Generated files, and what there is to do for each.
type Actions<'a> = Vec<(&'a Rendered, Action)>;

/// Returns what there is to do for each file, and the record of all.
fn actions<'a>(
    place: &Place,
    rendered: &'a [Rendered],
    known: &Record,
    force: bool,
) -> Result<(Actions<'a>, Record), UpdateError> {
    let mut record = Record::default();
    let mut actions = Vec::new();
    for file in rendered {
        let generated = digest(&file.content);
        let there = place.read(&file.path)?.map(|text| digest(&text));
        let last = known.0.get(&file.path);
        actions.push((file, action(&generated, last, there.as_deref(), file.ownership, force)));
        record.0.insert(file.path.clone(), generated);
    }
    Ok((actions, record))
}

/// The directory of a project.
pub(crate) struct Place(PathBuf);

impl Place {
    /// Opens the directory, and creates it if it does not exist.
    pub(crate) fn new(root: &Path) -> Result<Self, UpdateError> {
        fs::create_dir_all(root).map_err(failed("create", root))?;
        Self::existing(root)
    }

    /// Opens the directory, which exists.
    pub(crate) fn existing(root: &Path) -> Result<Self, UpdateError> {
        Ok(Self(root.canonicalize().map_err(failed("find", root))?))
    }

    /// Returns the files below a directory of the project whose names end like this, without hidden ones.
    pub(crate) fn list(&self, directory: &str, endings: &[&str]) -> Result<Vec<String>, UpdateError> {
        let mut found = Vec::new();
        let mut pending = vec![(directory.to_owned(), 0)];
        while let Some((directory, depth)) = pending.pop() {
            let place = self.0.join(&directory);
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("read", &place)(error)),
            };
            for entry in entries {
                let entry = entry.map_err(failed("read", &place))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let kind = entry.file_type().map_err(failed("look at", &place))?;
                let path = format!("{directory}/{name}");
                if name.starts_with('.') || name == "node_modules" {
                    continue;
                }
                if kind.is_dir() && depth < DEEPEST {
                    pending.push((path, depth + 1));
                } else if kind.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                    found.push(path);
                }
            }
            if found.len() > MOST_FILES {
                return Err(UpdateError::TooMany { path: directory });
            }
        }
        found.sort();
        Ok(found)
    }

    /// Returns the place of a file. Its directories are directories, and it is a file or nothing.
    fn checked(&self, path: &str) -> Result<PathBuf, UpdateError> {
        let outside = |expected| UpdateError::Outside { path: path.to_owned(), expected };
        let relative = Path::new(path);
        let mut place = self.0.clone();
        let mut components = relative.components().peekable();
        if components.peek().is_none() {
            return Err(outside("file"));
        }
        while let Some(component) = components.next() {
            let Component::Normal(name) = component else { return Err(outside("file")) };
            place.push(name);
            let expects_file = components.peek().is_none();
            match place.symlink_metadata() {
                Ok(metadata) if expects_file && metadata.is_file() => {}
                Ok(metadata) if !expects_file && metadata.is_dir() => {}
                Ok(_) => return Err(outside(if expects_file { "file" } else { "directory" })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("look at", &place)(error)),
            }
        }
        Ok(place)
    }

    /// Returns the content of a file, if it exists.
    pub(crate) fn read(&self, path: &str) -> Result<Option<String>, UpdateError> {
        let place = self.checked(path)?;
        let metadata = match fs::metadata(&place) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("look at", &place)(error)),
        };
        if metadata.len() > LARGEST {
            return Err(UpdateError::TooLarge { path: path.to_owned() });
        }
        let bytes = fs::read(&place).map_err(failed("read", &place))?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Writes a file, in one step.
    pub(crate) fn write(&self, path: &str, content: &str, executable: bool) -> Result<(), UpdateError> {
        let place = self.checked(path)?;
        let unfinished = self.checked(&format!("{path}{UNFINISHED}"))?;
        let directory = place.parent().unwrap_or(&self.0);
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
        let written =
            write_all(&unfinished, content, executable).and_then(|()| fs::rename(&unfinished, &place));
        written.map_err(|error| {
            _ = fs::remove_file(&unfinished);
            failed("write", &place)(error)
        })
    }

    pub(crate) fn remove(&self, path: &str) -> Result<(), UpdateError> {
        let place = self.checked(path)?;
        fs::remove_file(&place).map_err(failed("remove", &place))?;
        // Directories that are empty now go too.
        for directory in place.ancestors().skip(1).take_while(|directory| *directory != self.0) {
            if fs::remove_dir(directory).is_err() {
                break;
            }
        }
        Ok(())
    }
}

fn write_all(path: &Path, content: &str, executable: bool) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(content.as_bytes())?;
    if executable {
        make_executable(&file)?;
    }
    file.sync_all()
}

#[cfg(unix)]
fn make_executable(file: &fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut permissions = file.metadata()?.permissions();
    // Everyone who may read it may run it.
    permissions.set_mode(permissions.mode() | ((permissions.mode() & 0o444) >> 2));
    file.set_permissions(permissions)
}

#[cfg(not(unix))]
fn make_executable(_: &fs::File) -> io::Result<()> {
    Ok(())
}

fn failed<'a>(attempted: &'static str, path: &'a Path) -> impl Fn(io::Error) -> UpdateError + 'a {
    move |source| UpdateError::Io { attempted, path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORCED: Mode = Mode::Write { force: true };

    fn file(path: &str, content: &str) -> Rendered {
        Rendered {
            path: path.to_owned(),
            content: content.to_owned(),
            executable: false,
            ownership: Ownership::Generated,
        }
    }

    fn run(root: &Path, files: &[Rendered], force: bool) -> Report {
        let announced = root.exists().then(|| update(root, files, Mode::Check).expect("checked"));
        let report = update(root, files, Mode::Write { force }).expect("written");
        assert!(
            force || announced.is_none_or(|announced| announced == report),
            "a check finds what is written"
        );
        report
    }

    fn put(root: &Path, path: &str, text: &str) {
        fs::write(root.join(path), text).expect("a file");
    }

    fn at(root: &Path, path: &str) -> String {
        fs::read_to_string(root.join(path)).unwrap_or_default()
    }

    #[test]
    fn unchanged_files_are_updated_and_changed_ones_are_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let first = [
            file("a/kept", "1"),
            file("a/mine", "1"),
            file("a/gone", "1"),
            file("old", "1"),
            file("old-mine", "1"),
        ];
        assert_eq!(run(root, &first, false).created.len(), 5);
        assert_eq!(run(root, &first, false), Report::default(), "a second run does nothing");

        put(root, "a/mine", "mine");
        put(root, "old-mine", "mine");
        fs::remove_file(root.join("a/gone")).expect("removed");
        let report = run(root, &first, false);
        assert!(report.is_empty() && report.absent == ["a/gone"], "{report:?}");

        let second = [file("a/kept", "2"), file("a/mine", "2"), file("a/gone", "2"), file("new", "2")];
        let report = run(root, &second, false);
        assert_eq!((report.updated, report.created), (vec!["a/kept".to_owned()], vec!["new".to_owned()]));
        assert_eq!((report.offered, report.absent), (vec!["a/mine".to_owned()], vec!["a/gone".to_owned()]));
        assert_eq!((report.removed, report.orphaned), (vec!["old".to_owned()], vec!["old-mine".to_owned()]));
        assert_eq!(
            (at(root, "a/kept"), at(root, "a/mine"), at(root, "a/mine.new")),
            ("2".into(), "mine".into(), "2".into())
        );
        assert_eq!(at(root, "old-mine"), "mine");
        fs::remove_file(root.join("a/mine.new")).expect("merged");
        assert!(run(root, &second, false).is_empty(), "an offer is made once");

        let report = run(root, &second, true);
        assert_eq!((report.updated, report.created), (vec!["a/mine".to_owned()], vec!["a/gone".to_owned()]));
    }

    #[test]
    fn starters_are_offered_nothing_once_they_are_the_authors() {
        let directory = tempfile::tempdir().expect("a directory");
        let starter = |content: &str| [Rendered { ownership: Ownership::Starter, ..file("a", content) }];
        run(directory.path(), &starter("1"), false);
        assert_eq!(run(directory.path(), &starter("2"), false).updated, ["a"]);
        put(directory.path(), "a", "mine");
        assert!(run(directory.path(), &starter("3"), false).is_empty());
        assert_eq!(at(directory.path(), "a"), "mine");
    }

    #[test]
    fn a_run_that_was_interrupted_is_completed_by_the_next_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        run(root, &[file("a", "1"), file("b", "1")], false);
        // One file was renamed, another one was not, and the record is the old one.
        put(root, "a", "2");
        put(root, &format!("b{UNFINISHED}"), "");
        let report = run(root, &[file("a", "2"), file("b", "2")], false);
        assert_eq!((report.updated, report.offered.len()), (vec!["b".to_owned()], 0));
        assert!(!root.join(format!("b{UNFINISHED}")).exists());
    }

    #[test]
    fn no_path_leaves_the_project() {
        let directory = tempfile::tempdir().expect("a directory");
        let (root, outside) = (directory.path().join("project"), directory.path().join("outside"));
        fs::create_dir_all(&outside).expect("a directory");
        fs::create_dir_all(&root).expect("a directory");
        put(&outside, "victim", "1");
        for path in ["../outside/x", "/tmp/setpoint-x", "a/../../x", "", "."] {
            let error = update(&root, &[file(path, "1")], FORCED).expect_err(path).to_string();
            assert!(error.contains("expected a file in the project"), "{error}");
        }
        // A record that someone else has written removes nothing outside.
        fs::create_dir_all(root.join(".setpoint")).expect("a directory");
        put(&root, RECORD, &format!("{}  ../outside/victim\n", digest("1")));
        assert!(update(&root, &[], Mode::Write { force: false }).is_err());
        fs::remove_file(root.join(RECORD)).expect("removed");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&outside, root.join("config")).expect("a link");
            std::os::unix::fs::symlink(outside.join("victim"), root.join("file")).expect("a link");
            assert!(update(&root, &[file("config/victim", "2")], FORCED).is_err());
            assert!(update(&root, &[file("file", "2")], FORCED).is_err());
        }
        assert_eq!(at(&outside, "victim"), "1");
    }
}
