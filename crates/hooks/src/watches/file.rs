//! `watches.yaml`: which kinds are reconciled by which chart, role or playbook, as the Operator SDK reads it.
//!
//! Like the Operator SDK, this ignores unknown fields, but it warns of them.
//!
//! Invariant: an entry that is accepted can be run, as far as the files and the environment tell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use setpoint::LabelSelector;

use super::GroupKind;
use crate::ansible::{AnsibleWatch, Finalizer, Play};
use crate::helm::{Chart, HelmWatch};
use crate::model::go_duration;

/// One entry of `watches.yaml`.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The kind.
    pub(crate) kind: GroupKind,
    /// Only objects with these labels.
    pub(crate) selector: LabelSelector,
    /// How often objects are reconciled although nothing has changed. `None` is the operator's default.
    pub(crate) period: Option<Duration>,
    pub(crate) how: How,
}

/// What reconciles a kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    Helm(HelmWatch),
    Ansible(Box<AnsibleWatch>),
}

impl How {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Helm(_) => "Helm",
            Self::Ansible(_) => "Ansible",
        }
    }
}

/// The fields of an entry, for both kinds of operators.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
    chart: Option<String>,
    override_values: Option<BTreeMap<String, Scalar>>,
    dry_run_option: Option<String>,
    role: Option<String>,
    playbook: Option<String>,
    vars: Option<Map<String, Value>>,
    /// Runs leave nothing behind, so there is nothing to limit.
    #[serde(rename = "maxRunnerArtifacts")]
    _max_runner_artifacts: Option<i64>,
    finalizer: Option<FinalizerEntry>,
    manage_status: Option<bool>,
    watch_dependent_resources: Option<bool>,
    watch_cluster_scoped_resources: Option<bool>,
    snake_case_parameters: Option<bool>,
    watch_annotations_changes: Option<bool>,
    mark_unsafe: Option<bool>,
    blacklist: Option<Vec<Listed>>,
    reconcile_period: Option<Scalar>,
    selector: Option<LabelSelector>,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FinalizerEntry {
    #[serde(default)]
    name: String,
    role: Option<String>,
    playbook: Option<String>,
    vars: Option<Map<String, Value>>,
}

/// Text, or a number or boolean that someone did not quote.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(serde_json::Number),
    Boolean(bool),
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
            Self::Boolean(value) => value.to_string(),
        }
    }
}

/// The value of a variable of the environment.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the text of a `watches.yaml` whose paths are relative to `directory`.
///
/// ```
/// let error = setpoint_hooks::read_watches("- {kind: Shop, version: v1}".into(), ".".as_ref(), &|_| None);
/// assert!(error.unwrap_err().contains("expected chart, role or playbook"));
/// ```
pub fn read_watches(
    text: &str,
    directory: &Path,
    environment: Environment<'_>,
) -> Result<Vec<Watch>, String> {
    // Only Ansible operators replace variables everywhere, so a file is one or the other.
    let raw: Vec<Value> = parse(text)?;
    let is_ansible = raw.iter().any(|entry| entry.get("role").or(entry.get("playbook")).is_some());
    let raw = if is_ansible {
        parse(&expand(text, &|name| Some(environment(name).unwrap_or(format!("${{{name}}}")))))?
    } else {
        raw
    };
    let mut watches: Vec<Watch> = Vec::with_capacity(raw.len());
    for (nth, entry) in raw.into_iter().enumerate() {
        let watch = read(entry, directory, environment).map_err(|why| format!("[{nth}].{why}"))?;
        if watches.iter().any(|known| known.kind == watch.kind) {
            return Err(format!("[{nth}].kind: there are two entries for {}", watch.kind));
        }
        watches.push(watch);
    }
    Ok(watches)
}

fn parse(text: &str) -> Result<Vec<Value>, String> {
    match serde_saphyr::from_str(text) {
        Ok(Value::Array(entries)) => Ok(entries),
        Ok(Value::Null) => Ok(Vec::new()),
        Ok(_) => Err("expected a list of watches".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn read(entry: Value, directory: &Path, environment: Environment<'_>) -> Result<Watch, String> {
    let mut entry: Entry = serde_json::from_value(entry).map_err(|error| error.to_string())?;
    let required = |field: &str, value: &str| match value.is_empty() {
        true => Err(format!("{field}: expected text")),
        false => Ok(()),
    };
    for name in entry.unknown.keys() {
        tracing::warn!(field = name, kind = entry.kind, "watches.yaml has an unknown field");
    }
    required("version", &entry.version)?;
    required("kind", &entry.kind)?;
    let kind = GroupKind {
        group: std::mem::take(&mut entry.group),
        version: std::mem::take(&mut entry.version),
        kind: std::mem::take(&mut entry.kind),
    };
    let period = entry.reconcile_period.take().map(Scalar::text).map(|text| {
        go_duration(&text)
            .ok_or_else(|| format!("reconcilePeriod {text:?}: expected a duration such as 1m30s"))
    });
    let period = period.transpose()?;
    let selector = entry.selector.take().unwrap_or_default();
    let how = match (&entry.chart, entry.playbook.is_some() || entry.role.is_some()) {
        (Some(_), false) => How::Helm(helm(entry, directory, environment)?),
        (None, true) => How::Ansible(Box::new(ansible(entry, directory, environment)?)),
        (None, false) => return Err("chart: expected chart, role or playbook".to_owned()),
        (Some(_), true) => return Err("chart: expected chart, or role or playbook, not both".to_owned()),
    };
    Ok(Watch { kind, selector, period, how })
}

fn helm(entry: Entry, directory: &Path, environment: Environment<'_>) -> Result<HelmWatch, String> {
    match entry.dry_run_option.as_deref() {
        None | Some("" | "none" | "client" | "server" | "true" | "false") => {}
        Some(other) => return Err(format!("dryRunOption {other:?}: expected none, client or server")),
    }
    let chart = Chart::read(&directory.join(entry.chart.unwrap_or_default()))
        .map_err(|why| format!("chart: {why}"))?;
    let mut overrides = BTreeMap::new();
    for (path, value) in entry.override_values.unwrap_or_default() {
        // As in a shell, a variable that is not set is empty.
        let value = expand(&value.text(), &|name| Some(environment(name).unwrap_or_default()));
        if value.contains("{{") {
            return Err(format!("overrideValues[{path:?}]: templates are not supported: use a variable"));
        }
        crate::helm::check_override(&path, &value)
            .map_err(|why| format!("overrideValues[{path:?}]: {why}"))?;
        overrides.insert(path, value);
    }
    Ok(HelmWatch { chart, overrides, watches_dependents: entry.watch_dependent_resources.unwrap_or(true) })
}

fn ansible(entry: Entry, directory: &Path, environment: Environment<'_>) -> Result<AnsibleWatch, String> {
    let play = play(entry.playbook.as_deref(), entry.role.as_deref(), directory, environment)?;
    let play = play.ok_or("role: expected role or playbook")?;
    let finalizer = entry.finalizer.map(|entry| finalizer(entry, directory, environment)).transpose()?;
    let listed =
        |listed: Listed| GroupKind { group: listed.group, version: listed.version, kind: listed.kind };
    Ok(AnsibleWatch {
        play,
        vars: entry.vars.unwrap_or_default(),
        finalizer,
        manages_status: entry.manage_status.unwrap_or(true),
        watches_dependents: entry.watch_dependent_resources.unwrap_or(true),
        watches_cluster_scoped: entry.watch_cluster_scoped_resources.unwrap_or(false),
        watches_annotations: entry.watch_annotations_changes.unwrap_or(false),
        snake_case: entry.snake_case_parameters.unwrap_or(true),
        marks_unsafe: entry.mark_unsafe.unwrap_or(false),
        unwatched: entry.blacklist.unwrap_or_default().into_iter().map(listed).collect(),
    })
}

fn finalizer(
    entry: FinalizerEntry,
    directory: &Path,
    environment: Environment<'_>,
) -> Result<Finalizer, String> {
    if entry.name.is_empty() {
        return Err("finalizer.name: expected a name such as example.com/finalizer".to_owned());
    }
    let play = play(entry.playbook.as_deref(), entry.role.as_deref(), directory, environment);
    let play = play.map_err(|why| format!("finalizer.{why}"))?;
    let vars = entry.vars.unwrap_or_default();
    if play.is_none() && vars.is_empty() {
        return Err("finalizer: expected role, playbook or vars".to_owned());
    }
    Ok(Finalizer { name: entry.name, play, vars })
}

/// Finds a playbook or a role. A role is looked up where Ansible would.
fn play(
    playbook: Option<&str>,
    role: Option<&str>,
    directory: &Path,
    environment: Environment<'_>,
) -> Result<Option<Play>, String> {
    // Programs run in other directories.
    let directory = &std::path::absolute(directory).map_err(|error| error.to_string())?;
    if let Some(playbook) = playbook.filter(|playbook| !playbook.is_empty()) {
        let path = directory.join(playbook);
        return match path.is_file() {
            true => Ok(Some(Play::Playbook(path))),
            false => Err(format!("playbook: there is no file {}", path.display())),
        };
    }
    let Some(role) = role.filter(|role| !role.is_empty()) else { return Ok(None) };
    let places = role_places(role, directory, environment);
    match places.iter().find(|place| place.is_dir()) {
        Some(place) => Ok(Some(Play::Role(place.clone()))),
        None => Err(format!(
            "role: there is no directory {}",
            places.last().map_or(role.into(), |place| place.display().to_string())
        )),
    }
}

fn role_places(role: &str, directory: &Path, environment: Environment<'_>) -> Vec<PathBuf> {
    if Path::new(role).is_absolute() {
        return vec![role.into()];
    }
    let list = |name: &str| environment(name).filter(|value| !value.is_empty());
    let mut places = Vec::new();
    if let [namespace, collection, name] = role.split('.').collect::<Vec<_>>()[..] {
        let home = environment("HOME").unwrap_or_default();
        let known = list("ANSIBLE_COLLECTIONS_PATH")
            .unwrap_or_else(|| format!("/usr/share/ansible/collections:{home}/.ansible/collections"));
        let inside =
            Path::new("ansible_collections").join(namespace).join(collection).join("roles").join(name);
        places.extend(known.split(':').map(|parent| Path::new(parent).join(&inside)));
    }
    for parent in list("ANSIBLE_ROLES_PATH").iter().flat_map(|known| known.split(':')) {
        places.push(Path::new(parent).join(role));
        places.push(Path::new(parent).join("roles").join(role));
    }
    // The Operator SDK runs in the directory of the file.
    places.push(directory.join(role));
    places.push(directory.join("roles").join(role));
    places
}

/// Replaces `$NAME` and `${NAME}`. What `value` does not know stays as it is.
fn expand(text: &str, value: Environment<'_>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at..];
        let (name, length) = variable(rest);
        match value(name).filter(|_| !name.is_empty()) {
            Some(value) => expanded.push_str(&value),
            None => expanded.push_str(&rest[..length]),
        }
        rest = &rest[length..];
    }
    expanded + rest
}

/// Returns the variable at the start of a text that begins with `$`, and the length of the reference.
fn variable(text: &str) -> (&str, usize) {
    if let Some(inner) = text.strip_prefix("${") {
        return match inner.find('}') {
            Some(end) => (&inner[..end], end + 3),
            None => ("", 1),
        };
    }
    let name = &text[1..];
    let end =
        name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(name.len());
    (&name[..end], end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        write("helm-charts/shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n");
        write("roles/cache/tasks/main.yml", "[]");
        write("playbooks/site.yml", "[]");
        directory
    }

    fn read_in(directory: &Path, text: &str) -> Result<Vec<Watch>, String> {
        let environment = |name: &str| (name == "IMAGE").then(|| "shop:2".to_owned());
        read_watches(text, directory, &environment)
    }

    #[test]
    fn a_chart_is_an_operator() {
        let directory = directory();
        let text = "
# Use the 'create api' subcommand to add watches to this file.
- group: example.com
  version: v1
  kind: Shop
  chart: helm-charts/shop
  watchDependentResources: false
  reconcilePeriod: 1m30s
  dryRunOption: server
  selector: {matchLabels: {app: shop}}
  overrideValues: {image: $IMAGE, tier: '${TIER}x', replicas: 2}
#+kubebuilder:scaffold:watch
";
        let watches = read_in(directory.path(), text).expect("it is valid");
        let [Watch { kind, period, selector, how: How::Helm(helm) }] = watches.as_slice() else {
            panic!("{watches:?}")
        };
        assert_eq!(
            (kind.to_string().as_str(), *period),
            ("Shop.example.com/v1", Some(Duration::from_secs(90)))
        );
        assert!(!selector.is_empty() && !helm.watches_dependents && helm.chart.name == "shop");
        let expected = [("image", "shop:2"), ("replicas", "2"), ("tier", "x")];
        assert!(helm.overrides.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
    }

    #[test]
    fn a_role_or_a_playbook_is_an_operator() {
        let directory = directory();
        let text = "
- {version: v1, group: example.com, kind: Cache, role: cache, vars: {image: '${IMAGE}', other: '${OTHER}'},
   finalizer: {name: example.com/cache, vars: {state: absent}}, snakeCaseParameters: false}
- {version: v1, group: example.com, kind: Site, playbook: playbooks/site.yml, reconcilePeriod: 0, manageStatus: false}
";
        let watches = read_in(directory.path(), text).expect("it is valid");
        let [Watch { how: How::Ansible(cache), .. }, Watch { how: How::Ansible(site), period, .. }] =
            watches.as_slice()
        else {
            panic!("{watches:?}")
        };
        assert_eq!(cache.play, Play::Role(directory.path().join("roles/cache")));
        assert_eq!(
            (cache.vars["image"].as_str(), cache.vars["other"].as_str()),
            (Some("shop:2"), Some("${OTHER}"))
        );
        assert!(
            cache.finalizer.as_ref().is_some_and(|finalizer| finalizer.play.is_none()) && !cache.snake_case
        );
        assert!(
            matches!(&site.play, Play::Playbook(path) if path.ends_with("site.yml")) && !site.manages_status
        );
        assert_eq!(*period, Some(Duration::ZERO));
    }

    #[test]
    fn paths_do_not_depend_on_where_a_program_runs() {
        let directory = directory();
        let here = std::env::current_dir().expect("a directory");
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let relative = up.join(directory.path().strip_prefix("/").expect("it is absolute"));
        assert!(relative.is_relative() && relative.is_dir());
        let text = "
- {version: v1, group: g, kind: A, role: cache}
- {version: v1, group: g, kind: B, playbook: playbooks/site.yml}
- {version: v1, group: g, kind: C, chart: helm-charts/shop}
";
        for watch in read_in(&relative, text).expect("it is valid") {
            let path = match watch.how {
                How::Helm(helm) => helm.chart.path,
                How::Ansible(ansible) => match ansible.play {
                    Play::Role(path) | Play::Playbook(path) => path,
                },
            };
            assert!(path.is_absolute() && path.exists(), "{}", path.display());
        }
    }

    #[test]
    fn mistakes_are_reported_with_entry_and_field() {
        let directory = directory();
        let check = |entry: &str, why: &str| {
            let error = read_in(directory.path(), &format!("- {{group: g, {entry}}}")).expect_err(entry);
            assert!(error.starts_with("[0].") && error.contains(why), "{error}");
        };
        check("kind: A, chart: helm-charts/shop", "version: expected text");
        check("version: v1, chart: helm-charts/shop", "kind: expected text");
        check("version: v1, kind: A", "expected chart, role or playbook");
        check("version: v1, kind: A, chart: nowhere", "chart: ");
        check("version: v1, kind: A, role: nowhere", "role: there is no directory");
        check("version: v1, kind: A, playbook: nowhere", "playbook: there is no file");
        check("version: v1, kind: A, role: cache, finalizer: {vars: {a: b}}", "finalizer.name");
        check("version: v1, kind: A, role: cache, finalizer: {name: a/x}", "expected role, playbook or vars");
        check("version: v1, kind: A, chart: helm-charts/shop, role: cache", "not both");
        check("version: v1, kind: A, chart: helm-charts/shop, dryRunOption: x", "dryRunOption \"x\"");
        check("version: v1, kind: A, chart: helm-charts/shop, overrideValues: {a: '{{ .x }}'}", "templates");
        check(
            "version: v1, kind: A, chart: helm-charts/shop, reconcilePeriod: often",
            "reconcilePeriod \"often\"",
        );
        check(
            "version: v1, kind: A, chart: helm-charts/shop, overrideValues: {'a[': x}",
            "overrideValues[\"a[\"]",
        );
        let twice = "- {version: v1, kind: A, role: cache}\n- {version: v1, kind: A, role: cache}";
        assert!(read_in(directory.path(), twice).expect_err("twice").contains("[1].kind: there are two"));
        assert!(read_in(directory.path(), "a: b").expect_err("a map").contains("expected a list"));
    }

    #[test]
    fn variables_are_replaced_as_in_a_shell() {
        let value = |name: &str| (name == "A").then(|| "1".to_owned());
        let check = |text: &str, expected: &str| assert_eq!(expand(text, &value), expected, "{text}");
        check("$A-${A}$A", "1-11");
        check("$B ${B} $", "$B ${B} $");
        check("${A", "${A");
        check("é$Aé", "é1é");
    }
}
