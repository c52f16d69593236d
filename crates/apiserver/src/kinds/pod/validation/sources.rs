//! Validates volume sources, with one function per type.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::json::Json;
use crate::names;
use crate::quantity::Quantity;
use crate::validation::{
    add_invalid, csi_driver_name, dns_label, in_range, optional_choice, paths, required,
};

pub(super) const BAD_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
pub(in crate::kinds) const ISCSI_BYTES: usize = 64;
pub(in crate::kinds) const ISCSI_TOO_LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Requires that a few fields are not empty.
pub(in crate::kinds) fn needs(volume: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for field in fields {
        required(volume, field, path, errors);
    }
}

pub(super) fn empty_dir(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    if Quantity::of(volume.at("sizeLimit")).is_ok_and(|limit| limit.sign() < 0) {
        errors.forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

pub(in crate::kinds) fn host_path(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    if volume.text("path").is_empty() {
        return errors.required(&path.child("path"), "");
    }
    paths::no_backsteps(volume.text("path"), &path.child("path"), errors);
    optional_choice(volume, "type", &HOST_PATH_TYPES, path, errors);
}

pub(super) fn git_repo(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(volume, "repository", path, errors);
    paths::descending(volume.text("directory"), &path.child("directory"), errors);
}

/// Validates a cloud disk, or a partition of it.
pub(in crate::kinds) fn disk(volume: &Value, id: &str, path: &Path<'_>, errors: &mut Errors) {
    required(volume, id, path, errors);
    let partition = volume.count("partition");
    if !(0..=255).contains(&partition) {
        errors.invalid(&path.child("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

/// Validates a Secret or ConfigMap volume, or some of its keys.
pub(super) fn keys(volume: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    required(volume, name, path, errors);
    mode(volume, "defaultMode", path, errors);
    let items = path.child("items");
    for (index, item) in volume.list("items").iter().enumerate() {
        key_to_path(item, &items.index(index), errors);
    }
}

pub(super) fn key_to_path(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(item, "key", path, errors);
    required(item, "path", path, errors);
    paths::not_reserved(item.text("path"), &path.child("path"), errors);
    mode(item, "mode", path, errors);
}

pub(super) fn mode(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = object.int(field).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(&path.child(field), mode, BAD_MODE);
    }
}

pub(in crate::kinds) fn nfs(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    needs(volume, &["server", "path"], path, errors);
    if !volume.text("path").starts_with('/') {
        errors.invalid(&path.child("path"), volume.text("path"), "must be an absolute path");
    }
}

/// The error for names of unknown form: pod volumes have a longer message than persistent volumes.
const NO_ISCSI_NAME: &str = "must be valid format starting with iqn, eui, or naa";
const BAD_ISCSI_NAME: &str = "must be valid format";

pub(in crate::kinds) fn iscsi(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_iscsi(volume, NO_ISCSI_NAME, path, errors);
}

pub(in crate::kinds) fn persistent_iscsi(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_iscsi(volume, BAD_ISCSI_NAME, path, errors);
}

fn check_iscsi(volume: &Value, no_name: &str, path: &Path<'_>, errors: &mut Errors) {
    required(volume, "targetPortal", path, errors);
    match volume.text("iqn") {
        "" => errors.required(&path.child("iqn"), ""),
        name => iscsi_name(name, no_name, &path.child("iqn"), errors),
    }
    in_range(volume.count("lun"), 0, 255, &path.child("lun"), errors);
    let authenticated = volume.flag("chapAuthDiscovery") || volume.flag("chapAuthSession");
    if authenticated && !volume.has("secretRef") {
        errors.required(&path.child("secretRef"), "");
    }
    if let Some(name) = volume.at("initiatorName").as_str() {
        iscsi_name(name, no_name, &path.child("initiatorname"), errors);
    }
}

fn iscsi_name(name: &str, no_name: &str, path: &Path<'_>, errors: &mut Errors) {
    let well_formed = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => is_numbered(name, 16),
        Some("naa") => is_numbered(name, 32),
        _ => return errors.invalid(path, name, no_name),
    };
    if !well_formed {
        errors.invalid(path, name, BAD_ISCSI_NAME);
    }
}

/// Whether a name has the form `iqn.2001-04.com.example:storage`.
fn is_iqn(name: &str) -> bool {
    let Some((date, rest)) = name.strip_prefix("iqn.").and_then(|rest| rest.split_at_checked(8)) else {
        return false;
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let dated = matches!(date.as_bytes(), [_, _, _, _, b'-', _, _, b'.'])
        && digits(&date[..4])
        && digits(&date[5..7]);
    let Some((authority, unit)) = rest.split_once(':') else { return false };
    let authority_fine =
        !authority.is_empty() && authority.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    dated
        && authority_fine
        && !unit.is_empty()
        && !unit.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r'])
}

fn is_numbered(name: &str, digits: usize) -> bool {
    name.len() == 4 + digits && name.bytes().skip(4).all(|b| b.is_ascii_alphanumeric())
}

/// Checks the length of volume name and portal, which form a directory name if the initiator is named.
pub(super) fn check_iscsi_length(name: &str, volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let length = name.len() + 1 + volume.text("targetPortal").len();
    if volume.has("initiatorName") && length > ISCSI_BYTES {
        errors.invalid(&path.child("name"), name, ISCSI_TOO_LONG);
    }
}

pub(in crate::kinds) fn flocker(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, uuid) = (volume.text("datasetName"), volume.text("datasetUUID"));
    match (name, uuid) {
        ("", "") => errors.required(path, "one of datasetName and datasetUUID is required"),
        ("", _) | (_, "") => {}
        _ => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.invalid(path, "resource", detail);
        }
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

pub(in crate::kinds) fn monitors(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    if volume.list("monitors").is_empty() {
        errors.required(&path.child("monitors"), "");
    }
}

pub(in crate::kinds) fn rbd(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    monitors(volume, path, errors);
    required(volume, "image", path, errors);
}

pub(super) fn cinder(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(volume, "volumeID", path, errors);
    secret_reference(volume, path, errors);
}

fn secret_reference(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    if volume.has("secretRef") {
        required(volume.at("secretRef"), "name", &path.child("secretRef"), errors);
    }
}

pub(in crate::kinds) fn quobyte(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let detail = "must be a host:port pair or multiple pairs separated by commas";
    let registry = volume.text("registry");
    if registry.is_empty() {
        errors.required(&path.child("registry"), detail);
    } else if volume.text("tenant").len() >= 65 {
        errors.required(&path.child("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid(&path.child("registry"), registry, detail);
        }
    }
    required(volume, "volume", path, errors);
}

fn is_host_and_port(pair: &str) -> bool {
    match pair.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").is_some_and(|(_, port)| !port.contains(':')),
        None => pair.matches(':').count() == 1,
    }
}

pub(in crate::kinds) fn fibre_channel(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (names, ids) = (volume.list("targetWWNs"), volume.list("wwids"));
    let names_path = path.child("targetWWNs");
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => errors.required(&names_path, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.invalid(&names_path, names.to_vec(), detail);
        }
        _ => {}
    }
    if !names.is_empty() {
        match volume.int("lun") {
            None => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) => in_range(lun, 0, 255, &path.child("lun"), errors),
        }
    }
}

pub(in crate::kinds) fn flex(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(volume, "driver", path, errors);
    let options = path.child("options");
    for key in volume.map("options").into_iter().flat_map(|options| options.keys()) {
        let namespace = key.split('/').next().unwrap_or_default().to_lowercase();
        let reserved = ["kubernetes.io", "k8s.io"].iter().any(|domain| {
            namespace.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        if reserved {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&options.key(key), key.as_str(), detail);
        }
    }
}

pub(in crate::kinds) fn azure_disk(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    needs(volume, &["diskName", "diskURI"], path, errors);
    optional_choice(volume, "cachingMode", &["None", "ReadOnly", "ReadWrite"], path, errors);
    optional_choice(volume, "kind", &["Dedicated", "Managed", "Shared"], path, errors);
    let (start, form) = match volume.at("kind").as_str() {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => {
            ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
        }
    };
    let uri = volume.text("diskURI");
    if !uri.starts_with(start) {
        errors.not_supported(&path.child("diskURI"), uri, &[form]);
    }
}

pub(super) fn storage_os(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    storage_os_names(volume, path, errors);
    secret_reference(volume, path, errors);
}

pub(in crate::kinds) fn storage_os_names(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    match volume.text("volumeName") {
        "" => errors.required(&path.child("volumeName"), ""),
        name => dns_label(name, &path.child("volumeName"), errors),
    }
    let namespace = volume.text("volumeNamespace");
    if !namespace.is_empty() {
        dns_label(namespace, &path.child("volumeNamespace"), errors);
    }
}

pub(in crate::kinds) fn csi_driver(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    csi_driver_name(volume.text("driver"), &path.child("driver"), errors);
}

pub(super) fn csi(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    csi_driver(volume, path, errors);
    let secret = volume.at("nodePublishSecretRef");
    if secret.is_null() {
        return;
    }
    match secret.text("name") {
        "" => errors.required(&path.child("nodePublishSecretRef").child("name"), ""),
        name => add_invalid(names::dns_subdomain(name), name, &path.child("name"), errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_initiators_follow_their_standards() {
        for (name, fine) in [
            ("iqn.2001-04.com.example:storage.kube.sys1.xyz", true),
            ("iqn.2001-04.com.example", false),
            ("iqn.01-04.com.example:x", false),
            ("iqn.2001-04.com.example:a b", false),
            ("eui.0123456789ABCDEF", true),
            ("eui.0123", false),
            ("naa.62004567BA64678D0123456789ABCDEF", true),
            ("abc", false),
        ] {
            let mut errors = Errors::default();
            iscsi_name(name, NO_ISCSI_NAME, &Path::root("n"), &mut errors);
            assert_eq!(errors.is_empty(), fine, "{name}");
        }
    }
}
