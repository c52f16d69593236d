//! Resource graphs (kro): a ResourceGraphDefinition defines a kind, and each of its objects becomes a set of objects.
//!
//! ```text
//!  schema.rs      SimpleSchema ─► OpenAPI                                       (pure)
//!  markers.rs     `required=true default=3` of a field                          (pure)
//!  expression.rs  `${…}` in templates, evaluated as CEL                         (pure)
//!  parse.rs       a definition ─► resources in order                            (pure)
//!  types.rs       OpenAPI ─► CEL types; which values fit which field            (pure, except for fetching)
//!  check.rs       types of templates and expressions                            (pure)
//!  compatible.rs  whether a new schema accepts old instances                    (pure)
//!  crd.rs         the CustomResourceDefinitions                                 (pure)
//!  revisions.rs   GraphRevisions: accepted definitions
//!  definitions.rs the controller of ResourceGraphDefinitions
//!  instances.rs   the controller of their instances
//!  applyset.rs    an instance and its objects as an ApplySet                    (pure)
//!  resolve.rs     an instance ─► objects, one resource after the other
//!  remove.rs      deletes objects in reverse order, from the records on them
//! ```
//!
//! Invariants:
//! - A resource is applied when everything it refers to exists and is ready.
//! - Deletion needs no definition: objects carry the id of their instance and their position in the order.
//! - Expressions are checked when a definition is written: names, syntax, and types against the schemas of the kinds.
//! - Instances follow the newest accepted definition. A rejected definition changes nothing.

mod applyset;
mod check;
mod compatible;
mod crd;
mod definitions;
mod expression;
mod instances;
mod markers;
mod parse;
mod remove;
mod resolve;
mod revisions;
mod schema;
mod types;

use setpoint::{Access, Context, Runnable};

use crate::registry::{ANYTHING, Entry, Options};
pub(crate) use crd::{definition_crd, graph_kind, revision_crd, revision_kind};

/// Labels and annotations of objects.
mod label {
    pub(super) const OWNED: &str = "kro.run/owned";
    pub(super) const INSTANCE_ID: &str = "kro.run/instance-id";
    pub(super) const INSTANCE_NAME: &str = "kro.run/instance-name";
    pub(super) const INSTANCE_NAMESPACE: &str = "kro.run/instance-namespace";
    pub(super) const INSTANCE_GROUP: &str = "kro.run/instance-group";
    pub(super) const INSTANCE_VERSION: &str = "kro.run/instance-version";
    pub(super) const INSTANCE_KIND: &str = "kro.run/instance-kind";
    pub(super) const NODE_ID: &str = "kro.run/node-id";
    pub(super) const COLLECTION_INDEX: &str = "kro.run/collection-index";
    pub(super) const COLLECTION_SIZE: &str = "kro.run/collection-size";
    pub(super) const DEFINITION: &str = "kro.run/resource-graph-definition-name";
    pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// On an object: its ApplySet.
    pub(super) const PART_OF: &str = "applyset.kubernetes.io/part-of";
    pub(super) const RECONCILE: &str = "kro.run/reconcile";
    /// On an instance: the ApplySet of its objects, their kinds, and what manages it.
    pub(super) const SET: &str = "applyset.kubernetes.io/id";
    pub(super) const SET_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
    pub(super) const SET_TOOLING: &str = "applyset.kubernetes.io/tooling";
    /// On an instance: the kinds and versions of its objects.
    pub(super) const KINDS: &str = "internal.kro.run/kinds";
    /// On a revision: its definition, and the hash of the definition's spec.
    pub(super) const REVISION_OF: &str = "internal.kro.run/resource-graph-definition-name";
    pub(super) const REVISION_HASH: &str = "kro.run/graph-revision-hash";
    /// On a definition: allows schema changes that break instances.
    pub(super) const ALLOW_BREAKING: &str = "kro.run/allow-breaking-changes";
    /// On an object: the hash of the applied fields, so that fields dropped from a template are removed.
    pub(super) const HASH: &str = "internal.kro.run/hash";
    /// On an object: its position in the order, so that it can be deleted without the definition.
    pub(super) const ORDER: &str = "internal.kro.run/order";
    pub(super) const FINALIZER: &str = "kro.run/finalizer";
}

/// The field manager of objects of graphs.
const FIELD_MANAGER: &str = "kro";

pub(crate) const ENTRY: Entry = Entry {
    name: "resource-graph-controller",
    summary: "makes the kinds of ResourceGraphDefinitions, and the objects of their instances",
    watches: &[
        Access::watch("kro.run", "resourcegraphdefinitions"),
        Access::watch("internal.kro.run", "graphrevisions"),
        Access::watch("apiextensions.k8s.io", "customresourcedefinitions"),
    ],
    writes: &[
        Access::to("kro.run", "resourcegraphdefinitions/status", &["patch"]),
        Access::to("internal.kro.run", "graphrevisions", &["create", "delete"]),
        Access::to("apiextensions.k8s.io", "customresourcedefinitions", &["create", "update"]),
        ANYTHING,
    ],
    workers_flag: "concurrent-resource-graph-syncs",
    default_workers: 4,
    build,
};

/// Builds the controllers of graphs.
fn build(context: &Context, _: &Options) -> Vec<Box<dyn Runnable>> {
    let graphs = definitions::Graphs::new(context);
    let mut all = definitions::build(context, &graphs);
    all.extend(instances::build(context, &graphs));
    all
}
