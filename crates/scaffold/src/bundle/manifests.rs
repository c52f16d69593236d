//! The manifests of a project: its CRDs, its Deployment, what its service account may do, its samples.

use serde_json::Value;

use super::BundleError;
use crate::update::Place;

/// The manifests in a directory of a project, each with its file.
pub(super) struct Manifests(Vec<(String, Value)>);

/// The rules of a service account: in all namespaces, and in the operator's own.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    pub(super) cluster: Vec<Value>,
    pub(super) namespaced: Vec<Value>,
}

impl Manifests {
    /// Reads every manifest below these directories.
    pub(super) fn read(place: &Place, directories: &[&str]) -> Result<Self, BundleError> {
        let mut all = Vec::new();
        for directory in directories {
            for path in place.list(directory, &[".yaml", ".yml", ".json"])? {
                let text = place.read(&path)?.unwrap_or_default();
                all.extend(documents(&path, &text)?.into_iter().map(|document| (path.clone(), document)));
            }
        }
        Ok(Self(all))
    }

    /// Returns the manifests of a kind.
    pub(super) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().map(|(_, document)| document).filter(move |document| document["kind"] == kind)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|(_, document)| document)
    }

    /// Returns what a service account may do.
    pub(super) fn permissions(&self, account: &str) -> Permissions {
        let mut permissions = Permissions::default();
        for (binding, is_cluster) in self
            .of("ClusterRoleBinding")
            .map(|one| (one, true))
            .chain(self.of("RoleBinding").map(|one| (one, false)))
        {
            if !subjects(binding, account) {
                continue;
            }
            let rules = self.rules(&binding["roleRef"]);
            match is_cluster {
                true => permissions.cluster.extend(rules),
                false => permissions.namespaced.extend(rules),
            }
        }
        permissions
    }

    /// Whether a service account is bound to a role, or a binding binds it.
    pub(super) fn is_of_account(&self, document: &Value, account: &str) -> bool {
        let is_bound_to = |binding: &Value| {
            subjects(binding, account)
                && binding["roleRef"]["kind"] == document["kind"]
                && binding["roleRef"]["name"] == document["metadata"]["name"]
        };
        subjects(document, account)
            || self.of("ClusterRoleBinding").chain(self.of("RoleBinding")).any(is_bound_to)
    }

    fn rules(&self, role: &Value) -> Vec<Value> {
        let found =
            self.iter().find(|one| one["kind"] == role["kind"] && one["metadata"]["name"] == role["name"]);
        found.and_then(|role| role["rules"].as_array()).cloned().unwrap_or_default()
    }
}

fn subjects(binding: &Value, account: &str) -> bool {
    let subjects = binding["subjects"].as_array();
    subjects.into_iter().flatten().any(|one| one["kind"] == "ServiceAccount" && one["name"] == account)
}

/// Returns the documents of a file. Kustomizations and empty documents are left out.
pub(super) fn documents(path: &str, text: &str) -> Result<Vec<Value>, BundleError> {
    let unreadable = |why: String| BundleError::Unreadable { path: path.to_owned(), why };
    let all: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| unreadable(error.to_string().lines().next().unwrap_or_default().to_owned()))?;
    let is_manifest = |document: &Value| {
        let api_version = document["apiVersion"].as_str().unwrap_or_default();
        document["kind"].is_string() && !api_version.starts_with("kustomize.config.k8s.io/")
    };
    Ok(all.into_iter().filter(is_manifest).collect())
}
