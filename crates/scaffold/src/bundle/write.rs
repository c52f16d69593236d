//! The files of a bundle, from the manifests of a project.
//!
//! The author writes what only they know into the base of the ClusterServiceVersion. The rest is derived: the version,
//! the owned kinds, the Deployment, the permissions, the examples.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::manifests::{Manifests, documents};
use super::{ANNOTATIONS, BundleError, BundleOptions, Files, MANIFESTS};
use crate::description::{Description, semver};
use crate::names;
use crate::update::Place;

const MEDIA_TYPE: &str = "registry+v1";
const DEFAULT_CHANNEL: &str = "stable";
/// Kinds that go into the ClusterServiceVersion, or that an installation by OLM has no use for.
const LEFT_OUT: &[&str] = &["Namespace", "ServiceAccount", "NetworkPolicy", "Deployment"];

/// Returns the files of the bundle, and its Dockerfile.
pub(super) fn files(
    description: &Description,
    place: &Place,
    options: &BundleOptions,
) -> Result<(Files, String), BundleError> {
    let version = options.version.clone().unwrap_or_else(|| description.version.clone());
    semver("--version", &version)?;
    if let Some(image) = &options.image {
        names::image("--image", image)?;
    }
    let installed = Manifests::read(place, &["config/rbac", "config/manager", "config/webhook"])?;
    let definitions = Manifests::read(place, &["config/crd/bases"])?;
    let samples = Manifests::read(place, &["config/samples"])?;
    let mut files = Files::new();
    let csv = csv(description, place, options, &version, &installed, &definitions, &samples)?;
    let name = format!("{MANIFESTS}/{}.clusterserviceversion.yaml", description.name);
    files.insert(name, yaml(&csv));
    for definition in definitions.of("CustomResourceDefinition") {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let name = format!("{MANIFESTS}/{}_{}.yaml", text(group), text(plural));
        files.insert(name, yaml(definition));
    }
    let account = account(&csv).to_owned();
    for object in installed.iter().filter(|object| !LEFT_OUT.contains(&text(&object["kind"]))) {
        if !installed.is_of_account(object, &account) {
            let name = object_file(object);
            files.insert(name, yaml(&without_namespace(object)));
        }
    }
    for object in extra(place)? {
        files.insert(object_file(&object), yaml(&object));
    }
    let annotations = annotations(description, options);
    files.insert(ANNOTATIONS.to_owned(), yaml(&json!({"annotations": annotations})));
    if let Some(scorecard) = place.read("config/scorecard/config.yaml")? {
        files.insert("tests/scorecard/config.yaml".to_owned(), scorecard);
    }
    Ok((files, dockerfile(&annotations)))
}

/// Objects that the author wants in the bundle.
fn extra(place: &Place) -> Result<Vec<Value>, BundleError> {
    let mut objects = Vec::new();
    for path in place.list("config/manifests", &[".yaml", ".yml"])? {
        if !path.starts_with("config/manifests/bases/") {
            objects.extend(documents(&path, &place.read(&path)?.unwrap_or_default())?);
        }
    }
    Ok(objects)
}

fn csv(
    description: &Description,
    place: &Place,
    options: &BundleOptions,
    version: &str,
    installed: &Manifests,
    definitions: &Manifests,
    samples: &Manifests,
) -> Result<Value, BundleError> {
    let name = &description.name;
    let path = format!("config/manifests/bases/{name}.clusterserviceversion.yaml");
    let missing =
        |path: &str, expected: &str| BundleError::Missing { path: path.into(), expected: expected.into() };
    let base = place.read(&path)?.ok_or_else(|| missing(&path, "the base of the ClusterServiceVersion"))?;
    let base = documents(&path, &base)?.into_iter().find(|one| one["kind"] == "ClusterServiceVersion");
    let mut csv = base.ok_or_else(|| missing(&path, "a ClusterServiceVersion"))?;
    for field in ["metadata", "spec"] {
        if !csv[field].is_object() {
            return Err(missing(&format!("{path}: {field}"), "an object"));
        }
    }
    let mut deployments: Vec<Value> = installed.of("Deployment").cloned().collect();
    if deployments.is_empty() {
        return Err(missing("config/manager", "the operator's Deployment"));
    }
    let place_of_image = "/spec/template/spec/containers/0/image";
    if let (Some(image), Some(of_container)) = (&options.image, deployments[0].pointer_mut(place_of_image)) {
        *of_container = json!(image);
    }
    let image = deployments[0].pointer(place_of_image).cloned().unwrap_or_default();
    csv["metadata"]["name"] = json!(format!("{name}.v{version}"));
    if !csv["metadata"]["annotations"].is_object() {
        csv["metadata"]["annotations"] = json!({});
    }
    let annotations = &mut csv["metadata"]["annotations"];
    annotations["alm-examples"] = json!(examples(samples));
    annotations["operators.operatorframework.io/builder"] =
        json!(format!("setpoint-v{}", env!("CARGO_PKG_VERSION")));
    if !annotations["containerImage"].is_string() {
        annotations["containerImage"] = image;
    }
    let spec = &mut csv["spec"];
    spec["version"] = json!(version);
    if let Some(replaces) = &options.replaces {
        semver("--replaces", replaces)?;
        spec["replaces"] = json!(format!("{name}.v{replaces}"));
    }
    if !spec["customresourcedefinitions"].is_object() {
        spec["customresourcedefinitions"] = json!({});
    }
    spec["customresourcedefinitions"]["owned"] =
        json!(owned(definitions, &spec["customresourcedefinitions"]["owned"]));
    spec["install"] = install(&deployments, installed);
    spec["relatedImages"] = json!(related_images(&deployments));
    Ok(csv)
}

/// Returns the samples as a list in JSON.
fn examples(samples: &Manifests) -> String {
    let all: Vec<&Value> = samples.iter().collect();
    serde_json::to_string_pretty(&all).expect("JSON can be written")
}

/// Returns an entry for each version of each kind. What the author has written about one in the base is kept.
fn owned(definitions: &Manifests, base: &Value) -> Vec<Value> {
    let mut owned = Vec::new();
    for definition in definitions.of("CustomResourceDefinition") {
        let (spec, name) = (&definition["spec"], &definition["metadata"]["name"]);
        for version in spec["versions"].as_array().into_iter().flatten() {
            let (kind, version_name) = (&spec["names"]["kind"], &version["name"]);
            let said = &version["schema"]["openAPIV3Schema"]["description"];
            let about = said.as_str().filter(|said| !said.starts_with("Auto-generated derived type"));
            let mut entry = json!({
                "name": name,
                "version": version_name,
                "kind": kind,
                "displayName": kind,
                "description": about.map_or_else(|| format!("Desired state and status of a {}", text(kind)), str::to_owned),
            });
            let of_author = base
                .as_array()
                .into_iter()
                .flatten()
                .find(|one| (&one["name"], &one["version"], &one["kind"]) == (name, version_name, kind));
            if let (Some(entry), Some(more)) = (entry.as_object_mut(), of_author.and_then(Value::as_object)) {
                entry.extend(more.clone());
            }
            owned.push(entry);
        }
    }
    owned
}

fn install(deployments: &[Value], installed: &Manifests) -> Value {
    let mut strategy = Map::new();
    let (mut cluster, mut namespaced) = (Vec::new(), Vec::new());
    let mut accounts: Vec<&str> = deployments.iter().map(account_of).collect();
    accounts.dedup();
    for account in accounts {
        let permissions = installed.permissions(account);
        let entry = |rules: Vec<Value>| json!({"serviceAccountName": account, "rules": rules});
        cluster.extend((!permissions.cluster.is_empty()).then(|| entry(permissions.cluster)));
        namespaced.extend((!permissions.namespaced.is_empty()).then(|| entry(permissions.namespaced)));
    }
    let deployment = |one: &Value| json!({"name": one["metadata"]["name"], "label": one["metadata"]["labels"], "spec": one["spec"]});
    strategy.insert("clusterPermissions".into(), json!(cluster));
    strategy.insert("permissions".into(), json!(namespaced));
    strategy.insert("deployments".into(), deployments.iter().map(deployment).collect());
    json!({"strategy": "deployment", "spec": strategy})
}

fn related_images(deployments: &[Value]) -> Vec<Value> {
    let mut images = Vec::new();
    for deployment in deployments {
        let pod = &deployment["spec"]["template"]["spec"];
        for container in
            ["initContainers", "containers"].iter().filter_map(|list| pod[*list].as_array()).flatten()
        {
            let entry = json!({"name": container["name"], "image": container["image"]});
            if !images.contains(&entry) {
                images.push(entry);
            }
        }
    }
    images
}

fn account_of(deployment: &Value) -> &str {
    deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap_or("default")
}

fn account(csv: &Value) -> &str {
    let deployment = &csv["spec"]["install"]["spec"]["deployments"][0];
    account_of(deployment)
}

fn annotations(description: &Description, options: &BundleOptions) -> Map<String, Value> {
    let channels = match options.channels.is_empty() {
        true => vec![DEFAULT_CHANNEL.to_owned()],
        false => options.channels.clone(),
    };
    let default = options.default_channel.clone().unwrap_or_else(|| channels[0].clone());
    let bundle = |name: &str| format!("operators.operatorframework.io.bundle.{name}");
    let test = |name: &str| format!("operators.operatorframework.io.test.{name}");
    [
        (bundle("mediatype.v1"), MEDIA_TYPE.to_owned()),
        (bundle("manifests.v1"), "manifests/".to_owned()),
        (bundle("metadata.v1"), "metadata/".to_owned()),
        (bundle("package.v1"), description.name.clone()),
        (bundle("channels.v1"), channels.join(",")),
        (bundle("channel.default.v1"), default),
        (test("mediatype.v1"), "scorecard+v1".to_owned()),
        (test("config.v1"), "tests/scorecard/".to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name, Value::String(value)))
    .collect()
}

fn dockerfile(annotations: &Map<String, Value>) -> String {
    let mut lines = String::from("# The bundle as an image, written by `setpoint bundle`.\nFROM scratch\n\n");
    for (name, value) in annotations {
        let _ = writeln!(lines, "LABEL {name}={}", text(value));
    }
    lines
        + "\nCOPY bundle/manifests /manifests/\nCOPY bundle/metadata /metadata/\nCOPY bundle/tests/scorecard /tests/scorecard/\n"
}

/// OLM installs into the namespace that an administrator chooses.
fn without_namespace(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    object
}

fn object_file(object: &Value) -> String {
    let version = text(&object["apiVersion"]).rsplit('/').next().unwrap_or_default().to_owned();
    let kind = text(&object["kind"]).to_lowercase();
    format!("{MANIFESTS}/{}_{version}_{kind}.yaml", text(&object["metadata"]["name"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).expect("JSON can be written as YAML")
}
