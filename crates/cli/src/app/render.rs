//! `setpoint app dry-run` and `diff`: what an application becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use setpoint::client::Optional;
use setpoint::{Key, Kind};
use setpoint_oam::names::LOCAL_CLUSTER;
use setpoint_oam::{Rendered, builtin_definitions, definition_object, preview};

use super::clusters::{cluster_of, reached};
use super::connection::Connection;
use super::lines::unified;
use super::output::{Format, print, print_objects, reference};
use super::{Diff, DryRun};

#[derive(Debug, Args)]
pub(crate) struct FileFlags {
    /// File with the Application; - reads stdin.
    #[arg(long = "filename", short = 'f', value_name = "FILE", required = true)]
    pub(crate) filename: PathBuf,
}

/// The largest file that is read: twice what an API server accepts.
const MAX_BYTES: u64 = 6 << 20;

/// Reads the documents of a file: YAML, JSON or a CUE definition.
pub(crate) fn documents(path: &Path) -> anyhow::Result<Vec<Value>> {
    let shown = path.display();
    let text = read(path).with_context(|| format!("cannot read {shown}"))?;
    if path.extension().is_some_and(|ending| ending == "cue") {
        return Ok(vec![definition_object(&shown.to_string(), &text)?]);
    }
    let mut documents = Vec::new();
    for part in text.split("\n---").map(|part| part.trim_start_matches("---")) {
        if part.trim().is_empty() {
            continue;
        }
        let value: Value = serde_saphyr::from_str(part).with_context(|| format!("{shown} is not YAML"))?;
        match value {
            Value::Null => {}
            Value::Object(ref fields) if fields.get("kind").is_some_and(|kind| kind == "List") => {
                documents.extend(value["items"].as_array().into_iter().flatten().cloned());
            }
            value => documents.push(value),
        }
    }
    Ok(documents)
}

fn read(path: &Path) -> anyhow::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    match path == Path::new("-") {
        true => std::io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text)?,
        false => std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?,
    };
    if text.len() as u64 > MAX_BYTES {
        bail!("larger than {MAX_BYTES} bytes");
    }
    Ok(text)
}

/// Splits a file into its Applications and definitions.
fn applications(path: &Path) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    let (apps, rest): (Vec<Value>, Vec<Value>) =
        documents(path)?.into_iter().partition(|document| document["kind"] == "Application");
    if apps.is_empty() {
        bail!("{}: no Application in it", path.display());
    }
    if let Some(app) = apps.iter().find(|app| !app["metadata"].is_object()) {
        bail!("{}: metadata: expected an object, found {}", path.display(), app["metadata"]);
    }
    Ok((apps, rest))
}

pub(super) fn dry_run(arguments: &DryRun) -> anyhow::Result<()> {
    let (apps, more) = applications(&arguments.file.filename)?;
    let mut definitions = builtin_definitions()?;
    for path in &arguments.definitions {
        definitions.extend(documents(path)?);
    }
    definitions.extend(more);
    let mut objects = Vec::new();
    for app in &apps {
        let preview =
            preview(app, &definitions).map_err(|why| anyhow::anyhow!("{}: {why}", reference(app)))?;
        preview.skipped.iter().for_each(|step| eprintln!("{}: step {step} is not run", reference(app)));
        objects.extend(preview.objects.into_iter().map(placed));
    }
    match arguments.output.unwrap_or(Format::Yaml) {
        Format::Yaml => {
            let encoded = objects.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
            print(&encoded.join("---\n"))
        }
        format => print_objects(&objects, format, true),
    }
}

/// Names the place of an object, as far as that is known without a cluster.
fn placed(rendered: Rendered) -> Value {
    let mut object = rendered.object;
    if object["metadata"]["namespace"].is_null() && rendered.namespace != "default" {
        object["metadata"]["namespace"] = rendered.namespace.into();
    }
    if rendered.cluster != "local" {
        object["metadata"]["annotations"]["app.oam.dev/cluster"] = rendered.cluster.into();
    }
    object
}

/// Returns 0 if nothing would change, 1 if something would, 2 for an error, as `kubectl diff` does.
pub(super) async fn diff(arguments: Diff) -> anyhow::Result<ExitCode> {
    match differences(&arguments).await {
        Ok(found) if found.is_empty() => Ok(ExitCode::SUCCESS),
        Ok(found) => {
            print(&found)?;
            Ok(ExitCode::from(1))
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            Ok(ExitCode::from(2))
        }
    }
}

async fn differences(arguments: &Diff) -> anyhow::Result<String> {
    let (apps, more) = applications(&arguments.file.filename)?;
    let connection = arguments.target.connect().await?;
    let mut definitions = builtin_definitions()?;
    definitions.extend(shared_definitions(&connection).await?);
    definitions.extend(more);
    let mut out = String::new();
    for mut app in apps {
        if app["metadata"]["namespace"].is_null() {
            app["metadata"]["namespace"] = connection.namespace.clone().into();
        }
        let preview =
            preview(&app, &definitions).map_err(|why| anyhow::anyhow!("{}: {why}", reference(&app)))?;
        preview.skipped.iter().for_each(|step| eprintln!("{}: step {step} is not run", reference(&app)));
        out += &changes(&connection, &app, &preview.objects).await?;
    }
    Ok(out)
}

/// Returns the definitions of the shared namespace and the own one, the own ones last.
async fn shared_definitions(connection: &Connection) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for namespace in ["vela-system", connection.namespace.as_str()] {
        for kind in crate::def::kinds() {
            all.extend(connection.list(&kind, Some(namespace), None).await?.into_iter().map(|mut found| {
                found["kind"] = kind.kind().into();
                found
            }));
        }
    }
    Ok(all)
}

async fn changes(connection: &Connection, app: &Value, objects: &[Rendered]) -> anyhow::Result<String> {
    let mut clusters = BTreeMap::new();
    for name in objects.iter().map(|rendered| rendered.cluster.as_str()).collect::<BTreeSet<_>>() {
        let cluster = reached(connection, name).await;
        clusters.insert(name, cluster.with_context(|| format!("cluster {name}"))?);
    }
    let (mut out, mut seen) = (String::new(), Vec::new());
    for rendered in objects {
        let object = &rendered.object;
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let cluster = &clusters[rendered.cluster.as_str()];
        let Some(kind) = cluster.served.kind(&api_version, &kind) else {
            bail!("{}: the server does not serve {api_version} {kind}", reference(object));
        };
        let name = object["metadata"]["name"].clone();
        seen.push((rendered.cluster.clone(), kind.kind().to_owned(), name));
        out += &change(&cluster.connection, kind, rendered).await?;
    }
    for gone in dropped(connection, app, &seen).await? {
        out += &format!("--- {gone}\n(deleted)\n");
    }
    Ok(out)
}

/// Compares a live object with what a server-side apply would make of it.
async fn change(connection: &Connection, kind: &Kind, rendered: &Rendered) -> anyhow::Result<String> {
    let object = &rendered.object;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let own = object["metadata"]["namespace"].as_str().unwrap_or(&rendered.namespace);
    let key = if kind.namespaced() { Key::namespaced(own, name) } else { Key::cluster(name) };
    let live = connection.client.get(kind, &key).await.optional()?;
    let live: Option<Value> = live.map(|live| live.decode()).transpose()?;
    let applied = dry_apply(connection, kind, own, name, object).await?;
    let shown = |object: &Value| serde_saphyr::to_string(&comparable(object));
    let before = live.as_ref().map(shown).transpose()?.unwrap_or_default();
    let found = unified(&before, &shown(&applied)?);
    let place = match rendered.cluster.as_str() {
        LOCAL_CLUSTER => own.to_owned(),
        cluster => format!("{cluster}/{own}"),
    };
    let title = format!("{} ({place})", reference(object));
    Ok(if found.is_empty() { found } else { format!("--- {title}\n+++ {title}\n{found}") })
}

async fn dry_apply(
    connection: &Connection,
    kind: &Kind,
    namespace: &str,
    name: &str,
    object: &Value,
) -> anyhow::Result<Value> {
    let resource = ApiResource {
        group: kind.group().to_owned(),
        version: kind.version().to_owned(),
        api_version: kind.api_version(),
        kind: kind.kind().to_owned(),
        plural: kind.plural().to_owned(),
    };
    let api: Api<DynamicObject> = match kind.namespaced() {
        true => Api::namespaced_with(connection.kube.clone(), namespace, &resource),
        false => Api::all_with(connection.kube.clone(), &resource),
    };
    let parameters = PatchParams { dry_run: true, ..PatchParams::apply("setpoint-applications").force() };
    let applied = api.patch(name, &parameters, &Patch::Apply(object)).await;
    let applied =
        applied.with_context(|| format!("{}: the dry run of the apply failed", reference(object)))?;
    Ok(serde_json::to_value(applied)?)
}

/// Labels that depend on the revision, or that are added when an object is applied.
const OF_REVISION: [&str; 4] = [
    "app.oam.dev/appRevision",
    "app.oam.dev/app-revision-hash",
    "app.oam.dev/cluster",
    "oam.dev/render-hash",
];

/// Leaves out what changes with every write, and what depends on the revision.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        for name in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"] {
            meta.remove(name);
        }
        for part in ["labels", "annotations"] {
            if let Some(values) = meta.get_mut(part).and_then(Value::as_object_mut) {
                for name in OF_REVISION {
                    values.remove(name);
                }
            }
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// Returns the recorded objects that the file no longer has.
async fn dropped(
    connection: &Connection,
    app: &Value,
    seen: &[(String, String, Value)],
) -> anyhow::Result<Vec<String>> {
    let name = app["metadata"]["name"].as_str().unwrap_or_default();
    let namespace = app["metadata"]["namespace"].as_str().unwrap_or_default();
    let labels = format!("app.oam.dev/name={name},app.oam.dev/namespace={namespace}");
    let trackers = Kind::new("core.oam.dev", "v1beta1", "ResourceTracker", "resourcetrackers", false);
    let mut gone = Vec::new();
    for mut tracker in connection.list(&trackers, None, Some(labels)).await? {
        setpoint_oam::unpack_tracker(&mut tracker).map_err(anyhow::Error::msg)?;
        for entry in tracker["spec"]["managedResources"].as_array().into_iter().flatten() {
            let kind = entry["kind"].as_str().unwrap_or_default().to_owned();
            let shown = reference(
                &json!({"apiVersion": entry["apiVersion"], "kind": kind, "metadata": {"name": entry["name"]}}),
            );
            let cluster = cluster_of(entry);
            let shown = if cluster == LOCAL_CLUSTER { shown } else { format!("{shown} (cluster {cluster})") };
            let is_seen = seen.contains(&(cluster.to_owned(), kind, entry["name"].clone()));
            if !is_seen && !gone.contains(&shown) {
                gone.push(shown);
            }
        }
    }
    Ok(gone)
}

/// Reads a definition or an object from a file, for `setpoint def`.
pub(crate) fn definitions(path: &Path) -> anyhow::Result<Vec<Value>> {
    let found = documents(path)?;
    for object in &found {
        let kind = object["kind"].as_str().unwrap_or_default();
        if !crate::def::kinds().iter().any(|known| known.kind() == kind) {
            bail!("{}: kind {kind:?}, expected a definition", path.display());
        }
    }
    Ok(found)
}
