//! `setpoint add`: extends a project by a kind, a version or webhooks.

use std::collections::BTreeSet;

use anyhow::ensure;
use clap::{Args, Subcommand};
use setpoint_scaffold::{Language, NewKind, NewVersion, Scope, Webhook};

use crate::new::{Place, announce};

#[derive(Debug, Subcommand)]
pub(crate) enum Add {
    /// Add a kind, with its CRD, its controller, tests and samples.
    Kind(AddKind),
    /// Add a version to a kind. It starts as a copy of the stored version.
    Version(AddVersion),
    /// Add admission webhooks to a kind of a project in Rust.
    Webhook(AddWebhook),
}

#[derive(Debug, Args)]
pub(crate) struct AddKind {
    /// The kind, such as Database.
    kind: String,
    /// API group of the kind [default: that of the first kind].
    #[arg(long)]
    group: Option<String>,
    /// Version of the kind.
    #[arg(long, default_value = "v1", value_name = "VERSION")]
    api_version: String,
    /// Plural of the kind [default: its English plural].
    #[arg(long)]
    plural: Option<String>,
    /// Make the kind cluster-scoped.
    #[arg(long)]
    cluster_scoped: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct AddVersion {
    /// The kind.
    kind: String,
    /// The version, such as v2.
    #[arg(value_name = "VERSION")]
    new_version: String,
    /// Store objects in this version, and reconcile it.
    #[arg(long)]
    stored: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct AddWebhook {
    /// The kind.
    kind: String,
    /// Set defaults before objects are stored.
    #[arg(long)]
    defaulting: bool,
    /// Reject invalid objects.
    #[arg(long)]
    validation: bool,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(command: Add) -> anyhow::Result<()> {
    let report = match command {
        Add::Kind(arguments) => {
            let AddKind { kind, group, api_version: version, plural, cluster_scoped, place } = arguments;
            let mut project = place.project()?;
            ensure!(
                !(cluster_scoped && project.description().language == Language::Helm),
                "--cluster-scoped: expected a namespaced kind: a release is in the namespace of its object"
            );
            let scope = if cluster_scoped { Scope::Cluster } else { Scope::Namespaced };
            project.add_kind(NewKind { kind, group, version, plural, scope }, place.force)?
        }
        Add::Version(AddVersion { kind, new_version: version, stored, place }) => {
            place.project()?.add_version(NewVersion { kind, version, stored }, place.force)?
        }
        Add::Webhook(AddWebhook { kind, defaulting, validation, place }) => {
            let chosen = [(defaulting, Webhook::Defaulting), (validation, Webhook::Validation)];
            let webhooks: BTreeSet<Webhook> =
                chosen.into_iter().filter(|(chosen, _)| *chosen).map(|(_, webhook)| webhook).collect();
            ensure!(!webhooks.is_empty(), "expected --defaulting, --validation or both");
            place.project()?.add_webhooks(&kind, webhooks, place.force)?
        }
    };
    announce(&report);
    Ok(())
}
