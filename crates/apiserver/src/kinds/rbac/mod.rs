//! Roles and who has them: Role, RoleBinding and their cluster-wide counterparts.
//!
//! What they allow is decided in [`crate::auth`]; here is only what they look like.

mod binding;
mod role;

use super::{Api, entry};

pub use binding::{cluster_role_binding, role_binding};
pub use role::{cluster_role, role};

pub const GROUP: &str = "rbac.authorization.k8s.io";
const RBAC: Api = Api { group: GROUP, version: "v1", schemas: "io.k8s.api.rbac.v1" };
