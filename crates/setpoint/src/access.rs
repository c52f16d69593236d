//! The requests that a controller makes: the rules of its role.

/// A resource and verbs: a rule of a role.
///
/// ```
/// use setpoint::Access;
/// const NEEDS: &[Access] = &[Access::watch("", "pods"), Access::to("", "pods", &["delete"]), Access::EVENTS];
/// assert_eq!(NEEDS[0].verbs, ["get", "list", "watch"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Empty for the core group.
    pub group: &'static str,
    /// `pods`, `replicasets/status`
    pub resource: &'static str,
    /// `get`, `create`
    pub verbs: &'static [&'static str],
}

impl Access {
    /// The verbs needed to record events.
    pub const EVENTS: Self = Self::to("", "events", &["create", "patch", "update"]);

    /// The verbs needed to watch a resource.
    pub const fn watch(group: &'static str, resource: &'static str) -> Self {
        Self { group, resource, verbs: &["get", "list", "watch"] }
    }

    /// Any verbs on a resource.
    pub const fn to(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Self {
        Self { group, resource, verbs }
    }
}
