//! StorageVersions: the version in which each API server stores a resource. Served if the feature is enabled.

use serde_json::{Value, json};

use super::{API_SERVER_INTERNAL, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope, Subresource};
use crate::names;
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::validation::{Seen, add_invalid};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        semantics: Semantics {
            names: NameRule::PathSegment,
            counts_generations: false,
            unconditional_update: false,
            ..Semantics::with_strict_status(|| json!({}))
        },
        ..entry(&API_SERVER_INTERNAL, "StorageVersion", "storageversions", StorageVersion)
    }
}

struct StorageVersion;

impl Lifecycle for StorageVersion {}

impl Validation for StorageVersion {
    fn validate(&self, version: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(version, &mut errors);
        check_name(version.at("metadata").text("name"), &mut errors);
        errors
    }

    fn validate_update(&self, _: &Value, _: &Value) -> Errors {
        Errors::default()
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        check_status(new.at("status"), &mut errors);
        errors
    }
}

/// Validates the name: a group, a dot, and a resource.
fn check_name(name: &str, errors: &mut Errors) {
    let metadata = Path::root("metadata");
    let path = metadata.child("name");
    let Some((group, resource)) = name.rsplit_once('.') else {
        return errors.invalid(&path, name, "name must be in the form of <group>.<resource>");
    };
    for complaint in names::dns_subdomain(group) {
        errors.invalid(&path, name, format!("the group segment {complaint}"));
    }
    for complaint in names::dns_1035_label(resource) {
        errors.invalid(&path, name, format!("the resource segment {complaint}"));
    }
}

fn check_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let list = path.child("storageVersions");
    let mut servers = Seen::new();
    for (index, server) in status.list("storageVersions").iter().enumerate() {
        let path = list.index(index);
        let id = server.text("apiServerID");
        if servers.again(id) {
            errors.duplicate(&path.child("apiServerID"), id);
        }
        add_invalid(names::dns_subdomain(id), id, &path.child("apiServerID"), errors);
        let decodable = server.list("decodableVersions");
        let encoding = server.at("encodingVersion");
        if !decodable.contains(encoding) {
            let detail =
                format!("decodableVersions must include encodingVersion {}", server.text("encodingVersion"));
            errors.invalid(&path.child("decodableVersions"), json!(decodable), detail);
        }
    }
    let common = path.child("commonEncodingVersion");
    match (common_version(status), status.at("commonEncodingVersion").as_str()) {
        (None, Some(said)) => {
            let detail = "should be nil if servers do not agree on the same encoding version, or if there is no server \
                          reporting the supported versions yet";
            errors.invalid(&common, said, detail);
        }
        (Some(actual), None) => {
            errors.invalid(&common, Value::Null, format!("the common encoding version is {actual}"));
        }
        (Some(actual), Some(said)) if actual != said => {
            errors.invalid(&common, said, format!("the actual common encoding version is {actual}"));
        }
        _ => {}
    }
}

/// Returns the version that all servers store in, if they agree.
fn common_version(status: &Value) -> Option<&str> {
    let mut versions = status.list("storageVersions").iter().map(|server| server.text("encodingVersion"));
    let first = versions.next()?;
    versions.all(|version| version == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_version_is_the_common_one() {
        let server = |id: &str, version: &str| json!({"apiServerID": id, "encodingVersion": version, "decodableVersions": [version]});
        let check = |servers: Value, common: Value, wrong: usize| {
            let status = json!({"status": {"storageVersions": servers, "commonEncodingVersion": common}});
            let errors = StorageVersion.validate_status_update(&status, &Value::Null);
            assert_eq!(errors.0.len(), wrong, "{status}");
        };
        check(json!([]), Value::Null, 0);
        check(json!([server("a", "v1"), server("b", "v1")]), json!("v1"), 0);
        check(json!([server("a", "v1"), server("b", "v2")]), json!("v1"), 1);
        check(json!([server("a", "v1"), server("a", "v1")]), json!("v1"), 1);
        check(json!([server("a", "v1")]), Value::Null, 1);
    }

    #[test]
    fn names_are_of_groups_and_resources() {
        for (name, wrong) in [("apps.deployments", 0), ("deployments", 1), ("apps.Deployments", 1)] {
            let errors = StorageVersion.validate(&json!({"metadata": {"name": name}}));
            assert_eq!(errors.0.len(), wrong, "{name}");
        }
    }
}
