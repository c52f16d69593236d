//! The file systems of a pod's containers: a root each, and the volumes they share.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, VolumeMount};
use parking_lot::Mutex;

use super::environment::{Scope, expand};
use super::pod::Pod;
use super::sources::Tokens;
use super::volumes::{self, VolumeFile};
use crate::files::{FileSystem, MAX_PATH, Mount, Quota, Shared, Tree, path};

/// The volumes of a pod, by name.
#[derive(Debug)]
pub(crate) struct Volumes {
    trees: BTreeMap<String, Shared>,
    quota: Arc<Quota>,
}

impl Volumes {
    pub(crate) fn new(quota: Arc<Quota>) -> Self {
        Self { trees: BTreeMap::new(), quota }
    }

    /// Fills the volumes that Kubernetes manages with their current content. The others keep theirs. Files that do not
    /// fit are left out. A volume whose source is missing is empty.
    pub(crate) fn refresh(&mut self, scope: Scope<'_>, tokens: &Tokens, now: Timestamp) {
        for volume in &scope.pod.spec.volumes {
            let quota = self.quota.clone();
            let tree = self.trees.entry(volume.name.clone());
            let tree = tree.or_insert_with(|| Arc::new(Mutex::new(Tree::new(quota.clone()))));
            if volumes::is_managed(volume) {
                let files = volumes::files(scope, tokens, volume).unwrap_or_default();
                fill(&mut tree.lock(), files, now);
            }
        }
    }

    /// Mounts volumes over the root of a container.
    pub(crate) fn mount(
        &self,
        pod: &Pod,
        container: &Container,
        environment: &BTreeMap<String, String>,
        root: &Shared,
        now: Timestamp,
    ) -> FileSystem {
        let is_read_only =
            container.security_context.as_ref().and_then(|context| context.read_only_root_filesystem);
        let mounts = container.volume_mounts.iter().flatten();
        let mounts = mounts.filter_map(|mount| self.one(pod, mount, environment, now)).collect();
        FileSystem::new(Mount::root(root.clone(), is_read_only == Some(true)), mounts, now)
    }

    fn one(
        &self,
        pod: &Pod,
        mount: &VolumeMount,
        environment: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Option<Mount> {
        let volume = pod.spec.volumes.iter().find(|volume| volume.name == mount.name)?;
        let tree = self.trees.get(&mount.name)?.clone();
        let within = match (&mount.sub_path_expr, &mount.sub_path) {
            (Some(expression), _) if !expression.is_empty() => {
                expand(expression, MAX_PATH, |name| environment.get(name).map(String::as_str))?
            }
            (_, Some(path)) => path.clone(),
            _ => String::new(),
        };
        let within = path::normal("/", &within)[1..].to_owned();
        let is_managed = volumes::is_managed(volume);
        if !is_managed && !within.is_empty() {
            // As a kubelet does. Where there is a file, that is mounted.
            _ = tree.lock().make_directories(&within, now);
        }
        let at = path::normal("/", &mount.mount_path);
        Some(Mount {
            at: at.trim_end_matches('/').to_owned(),
            tree,
            within,
            is_read_only: is_managed || mount.read_only == Some(true),
            is_complete: volumes::is_complete(volume),
        })
    }
}

fn fill(tree: &mut Tree, files: Vec<VolumeFile>, now: Timestamp) {
    // The root of a tree cannot be removed, only emptied.
    _ = tree.remove("");
    for VolumeFile { path, content, mode } in files {
        let path = path::normal("/", &path)[1..].to_owned();
        let placed = tree.make_directories(path::split(&path).0, now);
        let placed = placed.and_then(|()| tree.write_shared(&path, content, mode, now));
        if let Err(why) = placed {
            tracing::debug!(path, %why, "a file of a volume is left out");
        }
    }
}

/// Returns the root of a container: directories that every image has, and the files that a kubelet manages.
pub(crate) fn root(pod: &Pod, container: &Container, quota: Arc<Quota>, now: Timestamp) -> Shared {
    let mut tree = Tree::new(quota);
    let ips = pod.ips().join("\n");
    let host = pod.host_name();
    let domain = match &pod.spec.subdomain {
        Some(subdomain) => format!("{host}.{subdomain}.{}.svc.cluster.local\t", pod.metadata.namespace),
        None => String::new(),
    };
    let entries: String = ips.lines().map(|ip| format!("{ip}\t{domain}{host}\n")).collect();
    let hosts = format!(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n{entries}"
    );
    let namespace = &pod.metadata.namespace;
    let resolv = format!(
        "search {namespace}.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.0.0.10\noptions ndots:5\n"
    );
    let message_path = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
    let files = [
        ("etc/hostname".to_owned(), format!("{host}\n")),
        ("etc/hosts".to_owned(), hosts),
        ("etc/resolv.conf".to_owned(), resolv),
        ("etc/passwd".to_owned(), "root:x:0:0:root:/root:/bin/sh\n".to_owned()),
        ("etc/group".to_owned(), "root:x:0:\n".to_owned()),
        (path::normal("/", message_path)[1..].to_owned(), String::new()),
    ];
    let working = container.working_dir.as_deref().map(|path| path::normal("/", path)[1..].to_owned());
    let directories =
        ["bin", "dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "usr/bin", "var/run", "var/log"];
    for directory in directories.into_iter().map(str::to_owned).chain(working) {
        _ = tree.make_directories(&directory, now);
    }
    for (path, content) in files {
        _ = tree.make_directories(path::split(&path).0, now);
        _ = tree.write(&path, content.into_bytes(), 0o644, now);
    }
    Arc::new(Mutex::new(tree))
}
