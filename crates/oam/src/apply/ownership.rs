//! Ownership of objects. An object belongs to the application in its labels.

use serde_json::Value;

use crate::names;

/// The application in an object's labels, as `namespace/name`.
pub(crate) fn owner(object: &Value) -> Option<String> {
    let label = |name: &str| object["metadata"]["labels"][name].as_str().filter(|text| !text.is_empty());
    Some(format!("{}/{}", label(names::APP_NAMESPACE)?, label(names::APP_NAME)?))
}

/// The applications that share an object, the owner first.
pub(crate) fn sharers(object: &Value) -> Vec<String> {
    let text = object["metadata"]["annotations"][names::SHARED_BY].as_str().unwrap_or_default();
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The permitted use of an existing object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permissions {
    pub(crate) take_over: bool,
    pub(crate) shared: bool,
}

/// Checks whether an application may write a live object. The error says who owns it.
pub(crate) fn check(live: &Value, app: &str, permissions: Permissions) -> Result<(), String> {
    match owner(live) {
        Some(owner) if owner == app => Ok(()),
        Some(_) if permissions.shared => Ok(()),
        Some(owner) => Err(format!("is managed by other application {owner}")),
        None if permissions.take_over || permissions.shared => Ok(()),
        None => Err("exists but not managed by any application now".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_of_others_is_refused_unless_a_policy_says_otherwise() {
        let of = |app: &str| json!({"metadata": {"labels": {"app.oam.dev/name": app, "app.oam.dev/namespace": "d"}}});
        let (none, all) = (Permissions::default(), Permissions { take_over: true, shared: false });
        assert!(check(&of("a"), "d/a", none).is_ok());
        assert!(check(&of("b"), "d/a", all).unwrap_err().contains("d/b"));
        assert!(check(&of("b"), "d/a", Permissions { shared: true, take_over: false }).is_ok());
        assert!(check(&json!({}), "d/a", none).unwrap_err().contains("not managed"));
        assert!(check(&json!({}), "d/a", all).is_ok());
    }
}
