//! The files of volumes whose content Kubernetes manages: ConfigMaps, Secrets, the downward API, projections. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume, VolumeProjection};

use super::downward;
use super::environment::Scope;
use super::sources::{Data, Tokens};

/// A file of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VolumeFile {
    pub(crate) path: String,
    pub(crate) content: Arc<Vec<u8>>,
    pub(crate) mode: u32,
}

/// The mode of files, unless the volume says otherwise.
const USUAL_MODE: i32 = 0o644;

/// The most that the downward API writes to one volume. A field may be as large as all annotations, and there may be many
/// items for it. Keys of ConfigMaps and Secrets are shared.
const MAX_DOWNWARD_BYTES: usize = 4 << 20;

/// Whether Kubernetes manages the content of a volume. All others start empty.
pub(crate) fn is_managed(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Whether all files of a volume are known: it is managed, or starts empty and belongs to the pod alone.
pub(crate) fn is_complete(volume: &Volume) -> bool {
    is_managed(volume) || volume.empty_dir.is_some()
}

/// Returns the files of a managed volume. An error is the kubelet's. A source of a projection that does not exist is left
/// out: the pod has started with it, or without the certificates of a cluster that has none.
pub(crate) fn files(scope: Scope<'_>, tokens: &Tokens, volume: &Volume) -> Result<Vec<VolumeFile>, String> {
    if let Some(map) = &volume.config_map {
        let is_optional = map.optional == Some(true);
        let data = scope.sources.config_map(&map.name, is_optional)?;
        return keys("config", data, map.items.as_deref(), map.default_mode, is_optional);
    }
    if let Some(secret) = &volume.secret {
        let is_optional = secret.optional == Some(true);
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let data = scope.sources.secret(name, is_optional)?;
        return keys("secret", data, secret.items.as_deref(), secret.default_mode, is_optional);
    }
    if let Some(downward) = &volume.downward_api {
        let items = downward.items.as_deref().unwrap_or_default();
        return downward_files(scope, items, downward.default_mode, &mut { MAX_DOWNWARD_BYTES });
    }
    let projected = volume.projected.as_ref();
    let mode = projected.and_then(|projected| projected.default_mode);
    let (mut files, mut left) = (Vec::new(), MAX_DOWNWARD_BYTES);
    for source in projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
        files.extend(projection(scope, tokens, source, mode, &mut left).unwrap_or_default());
    }
    Ok(files)
}

fn projection(
    scope: Scope<'_>,
    tokens: &Tokens,
    source: &VolumeProjection,
    mode: Option<i32>,
    left: &mut usize,
) -> Result<Vec<VolumeFile>, String> {
    if let Some(map) = &source.config_map {
        let is_optional = map.optional == Some(true);
        let data = scope.sources.config_map(&map.name, is_optional)?;
        return keys("config", data, map.items.as_deref(), mode, is_optional);
    }
    if let Some(secret) = &source.secret {
        let is_optional = secret.optional == Some(true);
        let data = scope.sources.secret(&secret.name, is_optional)?;
        return keys("secret", data, secret.items.as_deref(), mode, is_optional);
    }
    if let Some(downward) = &source.downward_api {
        let items = downward.items.as_deref().unwrap_or_default();
        return downward_files(scope, items, mode, left);
    }
    let token = source.service_account_token.as_ref();
    let file = token.and_then(|projection| {
        let content = Arc::new(tokens.get(projection)?.as_bytes().to_vec());
        Some(VolumeFile { path: projection.path.clone(), content, mode: bits(mode) })
    });
    Ok(file.into_iter().collect())
}

/// Returns the keys of an object as files: all, or the ones that are listed.
fn keys(
    kind: &str,
    data: Option<&Data>,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    is_optional: bool,
) -> Result<Vec<VolumeFile>, String> {
    let Some(data) = data else { return Ok(Vec::new()) };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        let file = |(key, content): (&String, &Arc<Vec<u8>>)| VolumeFile {
            path: key.clone(),
            content: content.clone(),
            mode: bits(mode),
        };
        return Ok(data.iter().map(file).collect());
    };
    let mut files = Vec::new();
    for item in items {
        match data.get(&item.key) {
            Some(content) => files.push(VolumeFile {
                path: item.path.clone(),
                content: content.clone(),
                mode: bits(item.mode.or(mode)),
            }),
            None if is_optional => {}
            None => return Err(format!("references non-existent {kind} key: {}", item.key)),
        }
    }
    Ok(files)
}

fn downward_files(
    scope: Scope<'_>,
    items: &[DownwardAPIVolumeFile],
    mode: Option<i32>,
    left: &mut usize,
) -> Result<Vec<VolumeFile>, String> {
    let mut files = Vec::new();
    for item in items {
        let file = downward_file(scope, item, mode)?;
        let rest = left.checked_sub(file.content.len());
        *left = rest.ok_or_else(|| {
            format!("the downward API files of the volume take more than {MAX_DOWNWARD_BYTES} bytes")
        })?;
        files.push(file);
    }
    Ok(files)
}

fn downward_file(
    scope: Scope<'_>,
    item: &DownwardAPIVolumeFile,
    mode: Option<i32>,
) -> Result<VolumeFile, String> {
    let content = match (&item.field_ref, &item.resource_field_ref) {
        (Some(field), _) => downward::field(scope.pod, &field.field_path)?,
        (None, Some(selector)) => downward::resource(scope.pod, None, selector, scope.allocatable)?,
        (None, None) => String::new(),
    };
    Ok(VolumeFile {
        path: item.path.clone(),
        content: Arc::new(content.into_bytes()),
        mode: bits(item.mode.or(mode)),
    })
}

fn bits(mode: Option<i32>) -> u32 {
    mode.unwrap_or(USUAL_MODE).unsigned_abs() & 0o7777
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use setpoint_placement::Resources;

    use super::*;
    use crate::runtime::pod::pod_of;
    use crate::runtime::sources::Sources;

    fn shown(volume: Value) -> String {
        let pod = pod_of(json!({"metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Mi"}}}]}}));
        let sources =
            Sources::fixed(&[("conf", &[("a", "1"), ("b", "2")])], &[("pass", &[("word", "secret")])]);
        let volume: Volume = serde_json::from_value(volume).expect("a volume");
        let (allocatable, services) = (Resources::default(), BTreeMap::new());
        let scope = Scope { pod: &pod, sources: &sources, allocatable: &allocatable, services: &services };
        let shown = |files: Vec<VolumeFile>| {
            let files = files.iter().map(|file| {
                format!("{}:{:o}:{}", file.path, file.mode, String::from_utf8_lossy(&file.content))
            });
            files.collect::<Vec<_>>().join(" ")
        };
        files(scope, &Tokens::default(), &volume).map_or_else(|why| why, shown)
    }

    #[test]
    fn keys_become_files_with_paths_and_modes() {
        let check = |volume: Value, expected: &str| assert_eq!(shown(volume.clone()), expected, "{volume}");
        check(json!({"name": "v", "configMap": {"name": "conf"}}), "a:644:1 b:644:2");
        let items = json!([{"key": "b", "path": "dir/two", "mode": 0o600}]);
        check(
            json!({"name": "v", "configMap": {"name": "conf", "items": items, "defaultMode": 0o400}}),
            "dir/two:600:2",
        );
        check(
            json!({"name": "v", "secret": {"secretName": "pass", "defaultMode": 0o400}}),
            "word:400:secret",
        );
        check(json!({"name": "v", "secret": {"secretName": "none", "optional": true}}), "");
        check(json!({"name": "v", "secret": {"secretName": "none"}}), "secret \"none\" not found");
        let missing = json!([{"key": "no", "path": "p"}]);
        check(
            json!({"name": "v", "configMap": {"name": "conf", "items": missing}}),
            "references non-existent config key: no",
        );
    }

    #[test]
    fn many_files_of_one_key_share_its_content_and_fields_are_bounded() {
        let items: Vec<Value> = (0..1000).map(|at| json!({"key": "a", "path": format!("p{at}")})).collect();
        let volume = json!({"name": "v", "configMap": {"name": "conf", "items": items}});
        let volume: Volume = serde_json::from_value(volume).expect("a volume");
        let (pod, sources) = (pod_of(json!({})), Sources::fixed(&[("conf", &[("a", "1")])], &[]));
        let (allocatable, services) = (Resources::default(), BTreeMap::new());
        let scope = Scope { pod: &pod, sources: &sources, allocatable: &allocatable, services: &services };
        let files = files(scope, &Tokens::default(), &volume).expect("the key exists");
        assert!(files.iter().all(|file| Arc::ptr_eq(&file.content, &files[0].content)));
        let labels =
            |at: i32| json!({"path": format!("l{at}"), "fieldRef": {"fieldPath": "metadata.labels"}});
        let items: Vec<Value> = (0..500_000).map(labels).collect();
        let expected = "the downward API files of the volume take more than 4194304 bytes";
        assert_eq!(shown(json!({"name": "v", "downwardAPI": {"items": items}})), expected);
    }

    #[test]
    fn projections_and_the_downward_api_become_files() {
        let items = json!([
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "memory", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory"}, "mode": 0o440},
        ]);
        assert_eq!(
            shown(json!({"name": "v", "downwardAPI": {"items": items}})),
            "labels:644:app=\"web\" memory:440:1048576"
        );
        let sources = json!([{"configMap": {"name": "conf", "items": [{"key": "a", "path": "a"}]}},
            {"secret": {"name": "pass"}}, {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"configMap": {"name": "none"}}, {"serviceAccountToken": {"path": "token"}}]);
        let projected = json!({"name": "v", "projected": {"defaultMode": 0o444, "sources": sources}});
        assert_eq!(shown(projected), "a:444:1 word:444:secret n:444:p");
    }
}
