//! The directory of an operator: manifests, a file of kind Operator for hooks that are child processes, and a
//! `watches.yaml` for operators that are made of charts, roles and playbooks.
//!
//! ```yaml
//! apiVersion: setpoint.dev/v1alpha1
//! kind: Operator
//! commands:
//!   - name: greeter                # hooks with the URL exec://greeter/… are calls of it
//!     command: [python3, greeter.py]
//! resolve: {hook.shop: 127.0.0.1:8080}
//! ```
//!
//! Of a project of the Operator SDK or of `setpoint new`, only the CustomResourceDefinitions and hooks are applied: the
//! rest of its configuration deploys the operator itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use serde_json::Value;
use setpoint_hooks::{Command, Watch, read_watches};

use crate::app::render::documents;

/// The maximum number of files in an operator's directory.
const MAX_FILES: usize = 5_000;
/// The maximum nesting of directories.
const MAX_DEPTH: usize = 8;
/// Directories and files of other tools.
const SKIPPED: [&str; 3] = ["node_modules", "__pycache__", "target"];
/// Directories whose YAML is for Ansible.
const FOR_ANSIBLE: [&str; 4] = ["roles", "playbooks", "molecule", "collections"];
/// The files in the root of a project of the Operator SDK, and of `setpoint new`.
const PROJECTS: [&str; 2] = ["PROJECT", setpoint_scaffold::DESCRIPTION];
/// What the operator itself needs of a project.
const OF_OPERATOR: [&str; 2] = ["config/crd/bases", "hooks"];
/// What the Operator SDK calls the file of watches.
const WATCHES: &str = "watches.yaml";

/// The contents of a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    pub(crate) manifests: Vec<Value>,
    pub(crate) commands: Vec<Command>,
    pub(crate) resolve: BTreeMap<String, String>,
    pub(crate) watches: Vec<Watch>,
    /// All files, with the time of their last change and their size.
    pub(crate) files: BTreeMap<PathBuf, (SystemTime, u64)>,
}

impl Directory {
    /// Reads a directory, or a single file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut directory = Self { files: stamps(path)?, ..Self::default() };
        let watches = path.join(WATCHES);
        if directory.files.contains_key(&watches) {
            directory.read_watches(path, &watches).with_context(|| watches.display().to_string())?;
        }
        let has_watches = !directory.watches.is_empty();
        for file in directory.manifest_files(path) {
            if has_watches && (file == watches || is_for_ansible(path, &file)) {
                continue;
            }
            let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if ["yaml", "yml", "json"].contains(&ending) {
                directory.read_file(&file)?;
            }
        }
        Ok(directory)
    }

    /// Whether CompositeControllers and DecoratorControllers run. A directory may have nothing but watches.
    pub(crate) fn has_hooks(&self) -> bool {
        let is_controller = |manifest: &Value| {
            manifest["kind"]
                .as_str()
                .is_some_and(|kind| matches!(kind, "CompositeController" | "DecoratorController"))
        };
        self.watches.is_empty() || !self.commands.is_empty() || self.manifests.iter().any(is_controller)
    }

    fn read_watches(&mut self, directory: &Path, file: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(file)?;
        // A manifest may have this name too.
        let lines =
            text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty() && *line != "---");
        if lines.take(1).any(|line| line.starts_with('-') || line.starts_with('[')) {
            let environment = |name: &str| std::env::var(name).ok();
            self.watches = read_watches(&text, directory, &environment).map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }

    /// Returns the files that may be manifests: not those of charts, and of a project only its definitions.
    fn manifest_files(&self, path: &Path) -> Vec<PathBuf> {
        let charts: Vec<&Path> = self
            .files
            .keys()
            .filter(|file| file.file_name().is_some_and(|name| name == "Chart.yaml"))
            .filter_map(|file| file.parent())
            .collect();
        let is_project = PROJECTS.iter().any(|name| self.files.contains_key(&path.join(name)));
        let of_operator = OF_OPERATOR.map(|directory| path.join(directory));
        let may_be = |file: &&PathBuf| {
            let is_of_chart = charts.iter().any(|chart| file.starts_with(chart));
            let is_of_operator = of_operator.iter().any(|directory| file.starts_with(directory));
            !is_of_chart && (!is_project || is_of_operator)
        };
        self.files.keys().filter(may_be).cloned().collect()
    }

    fn read_file(&mut self, file: &Path) -> anyhow::Result<()> {
        let shown = file.display();
        for document in documents(file)? {
            let text = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
            match (text("apiVersion").as_str(), text("kind").as_str()) {
                ("setpoint.dev/v1alpha1", "Operator") => {
                    self.read_operator(file, &document).with_context(|| format!("{shown}"))?;
                }
                // For other tools, or not a manifest at all.
                (api_version, "Kustomization") if api_version.starts_with("kustomize.config.k8s.io/") => {}
                ("", _) | (_, "") => {}
                _ if document["metadata"]["name"].is_string() => self.manifests.push(document),
                (_, kind) => bail!("{shown}: metadata.name: expected the name of the {kind}"),
            }
        }
        Ok(())
    }

    fn read_operator(&mut self, file: &Path, document: &Value) -> anyhow::Result<()> {
        let fields = document.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let known = ["apiVersion", "kind", "metadata", "commands", "resolve"];
        if let Some(unknown) = fields.into_iter().find(|name| !known.contains(name)) {
            bail!("{unknown}: unknown field: expected commands or resolve");
        }
        for (nth, command) in document["commands"].as_array().into_iter().flatten().enumerate() {
            let command = command_of(file, command).with_context(|| format!("commands[{nth}]"))?;
            if self.commands.iter().any(|known| known.name == command.name) {
                bail!("commands[{nth}].name: there are two commands {:?}", command.name);
            }
            self.commands.push(command);
        }
        for (host, address) in document["resolve"].as_object().into_iter().flatten() {
            let address = address.as_str().with_context(|| format!("resolve.{host}: expected an address"))?;
            self.resolve.insert(host.clone(), address.to_owned());
        }
        Ok(())
    }
}

fn is_for_ansible(directory: &Path, file: &Path) -> bool {
    let inside = file.strip_prefix(directory).unwrap_or(file);
    let first = inside.components().next().map(|first| first.as_os_str().to_string_lossy().into_owned());
    first.is_some_and(|first| FOR_ANSIBLE.contains(&first.as_str()))
}

fn command_of(file: &Path, value: &Value) -> anyhow::Result<Command> {
    let known = ["name", "command", "environment", "processes"];
    let mut fields = value.as_object().context("expected an object")?.keys();
    if let Some(unknown) = fields.find(|name| !known.contains(&name.as_str())) {
        bail!("{unknown}: unknown field: expected one of {}", known.join(", "));
    }
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let name = value["name"].as_str().filter(|name| !name.is_empty() && name.chars().all(fits));
    let name = name.context("name: expected lower-case letters, digits and '-'")?;
    let texts = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let command = texts(&value["command"]).filter(|command| !command.is_empty());
    let command = command.context("command: expected a program and its arguments, as a list of texts")?;
    let mut environment = BTreeMap::new();
    for (name, value) in value["environment"].as_object().into_iter().flatten() {
        let value = value.as_str().with_context(|| format!("environment.{name}: expected text"))?;
        environment.insert(name.clone(), value.to_owned());
    }
    let processes = match &value["processes"] {
        Value::Null => 1,
        count => {
            count.as_u64().filter(|count| (1..=64).contains(count)).context("processes: expected 1 to 64")?
        }
    };
    Ok(Command {
        name: name.to_owned(),
        command,
        environment,
        directory: file.parent().filter(|path| *path != Path::new("")).unwrap_or(Path::new(".")).to_owned(),
        processes: processes as usize,
    })
}

/// Returns the files below a directory, with the time of their last change and their size.
pub(super) fn stamps(path: &Path) -> anyhow::Result<BTreeMap<PathBuf, (SystemTime, u64)>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![(path.to_owned(), 0)];
    while let Some((path, depth)) = pending.pop() {
        let shown = path.display();
        let metadata = std::fs::metadata(&path).with_context(|| format!("cannot read {shown}"))?;
        if metadata.is_file() {
            files.insert(
                path.clone(),
                (metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len()),
            );
        }
        if files.len() > MAX_FILES {
            bail!("{shown}: there are more than {MAX_FILES} files");
        }
        if !metadata.is_dir() || depth > MAX_DEPTH {
            continue;
        }
        for entry in std::fs::read_dir(&path).with_context(|| format!("cannot read {shown}"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_str()) {
                pending.push((entry.path(), depth + 1));
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> anyhow::Result<Directory> {
        let directory = tempfile::tempdir()?;
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("below the directory"))?;
            std::fs::write(path, text)?;
        }
        Directory::read(directory.path())
    }

    const OPERATOR: &str = "apiVersion: setpoint.dev/v1alpha1\nkind: Operator\n";

    #[test]
    fn a_directory_has_manifests_and_commands() {
        let operator = format!(
            "{OPERATOR}commands:\n- {{name: greeter, command: [python3, g.py], processes: 2}}\nresolve: {{a.b: 127.0.0.1:1}}\n"
        );
        let directory = read(&[
            ("operator.yaml", &operator),
            (
                "deep/crd.yaml",
                "{kind: Thing, apiVersion: v1, metadata: {name: a}}\n---\n{kind: Thing, apiVersion: v1, metadata: {name: b}}",
            ),
            ("kustomization.yaml", "{kind: Kustomization, apiVersion: kustomize.config.k8s.io/v1beta1}"),
            ("package.json", "{\"name\": \"x\"}"),
            ("g.py", "not: [yaml"),
            (".hidden/x.yaml", "not: [yaml"),
        ]);
        let directory = directory.expect("a directory");
        assert_eq!(directory.manifests.len(), 2);
        assert_eq!((directory.commands[0].name.as_str(), directory.commands[0].processes), ("greeter", 2));
        assert_eq!(directory.resolve["a.b"], "127.0.0.1:1");
        assert_eq!(directory.files.len(), 5);
    }

    const WATCHES_TEXT: &str =
        "# comment\n- {group: example.com, version: v1, kind: Shop, chart: helm-charts/shop}\n";

    #[test]
    fn a_project_of_the_operator_sdk_has_watches_and_definitions() {
        let crd =
            "{kind: CustomResourceDefinition, apiVersion: apiextensions.k8s.io/v1, metadata: {name: a}}";
        let files = [
            ("PROJECT", "layout: [helm.sdk.operatorframework.io/v1]"),
            ("watches.yaml", WATCHES_TEXT),
            ("helm-charts/shop/Chart.yaml", "name: shop"),
            ("helm-charts/shop/templates/a.yaml", "a: {{ .Values.a }}"),
            ("config/crd/bases/a.yaml", crd),
            (
                "config/manager/manager.yaml",
                "{kind: Deployment, apiVersion: apps/v1, metadata: {name: manager}}",
            ),
        ];
        let directory = read(&files).expect("a project");
        assert_eq!(
            (directory.watches.len(), directory.manifests.len(), directory.has_hooks()),
            (1, 1, false)
        );
        let directory = read(&files[1..]).expect("a directory");
        assert_eq!((directory.watches.len(), directory.manifests.len()), (1, 2));
        let error =
            read(&[("watches.yaml", "- {kind: Shop, version: v1, chart: nowhere}")]).expect_err("no chart");
        assert!(format!("{error:#}").contains("watches.yaml: [0].chart: "), "{error:#}");
        let manifest = "{kind: Thing, apiVersion: v1, metadata: {name: a}}";
        assert_eq!(read(&[("watches.yaml", manifest)]).expect("a manifest").manifests.len(), 1);
    }

    #[test]
    fn a_project_of_setpoint_new_has_definitions_and_hooks() {
        let manifest = |kind: &str| format!("{{kind: {kind}, apiVersion: v1, metadata: {{name: a}}}}");
        let operator = format!("{OPERATOR}commands: [{{name: hooks, command: [python3, main.py]}}]\n");
        let directory = read(&[
            ("setpoint.yaml", "apiVersion: setpoint.dev/v1alpha1\nkind: Project\nmetadata: {name: a}\n"),
            ("config/crd/bases/a.yaml", &manifest("CustomResourceDefinition")),
            ("config/manager/manager.yaml", &manifest("Deployment")),
            ("hooks/operator.yaml", &operator),
            ("hooks/a.yaml", &manifest("CompositeController")),
            ("chart/templates/a.yaml", "a: {{ .Values.a }}"),
            ("chart/Chart.yaml", "name: a"),
        ]);
        let directory = directory.expect("a project");
        let kinds: Vec<_> =
            directory.manifests.iter().map(|one| one["kind"].as_str().unwrap_or("")).collect();
        assert_eq!(kinds, ["CustomResourceDefinition", "CompositeController"]);
        assert!(directory.commands[0].directory.ends_with("hooks") && directory.has_hooks());
    }

    #[test]
    fn mistakes_are_reported_with_file_and_field() {
        let check = |text: &str, why: &str| {
            let text = format!("{OPERATOR}{text}");
            let error = format!("{:#}", read(&[("operator.yaml", &text)]).expect_err(why));
            assert!(error.contains("operator.yaml") && error.contains(why), "{error}");
        };
        check("comands: []", "comands: unknown field");
        check("commands: [{command: [x]}]", "commands[0]: name:");
        check("commands: [{name: x}]", "commands[0]: command:");
        check("commands: [{name: x, command: x}]", "commands[0]: command:");
        check("commands: [{name: x, command: [x], processes: 0}]", "commands[0]: processes:");
        check("commands: [{name: x, command: [x]}, {name: x, command: [other]}]", "commands[1].name:");
        check("resolve: {a: 1}", "resolve.a:");
        assert!(read(&[("a.yaml", "{kind: Thing, apiVersion: v1}")]).is_err());
        assert!(read(&[("a.yaml", "a: [")]).is_err());
    }
}
