//! Role, RoleBinding and their cluster-wide counterparts.
//!
//! [`crate::auth`] evaluates them; this module only defines the kinds.

mod binding;
mod role;

use super::{Api, entry};

pub use binding::{cluster_role_binding, role_binding};
pub use role::{cluster_role, role};

pub const GROUP: &str = "rbac.authorization.k8s.io";
const RBAC: Api = Api { group: GROUP, version: "v1", schemas: "io.k8s.api.rbac.v1" };
