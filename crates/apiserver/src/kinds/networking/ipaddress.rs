//! IPAddresses: one for every cluster IP in use, named after it.

use serde_json::Value;

use super::{NETWORKING, check_segment};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{dns_subdomain, immutable, path_segment};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["ip".into()],
        columns: vec![
            Column::name(),
            Column::text("ParentRef", PARENT, |address, _| shown(address.at("spec").at("parentRef")).into()),
            Column::age().without_definition(),
        ],
        semantics: Semantics { counts_generations: false, names: NameRule::Address, ..Semantics::default() },
        ..entry(&NETWORKING, "IPAddress", "ipaddresses", IPAddress)
    }
}

const PARENT: &str = "ParentRef references the resource that an IPAddress is attached to. An IPAddress must reference a parent object.";

fn shown(parent: &Value) -> String {
    if parent.is_null() {
        return "<none>".into();
    }
    let (group, resource) = (parent.text("group"), parent.text("resource"));
    let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let parts = [resource.to_lowercase(), parent.text("namespace").into(), parent.text("name").into()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

struct IPAddress;

impl Lifecycle for IPAddress {}

impl Validation for IPAddress {
    fn validate(&self, address: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(address, &mut errors);
        check_parent(address.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Cluster, NameRule::Address, &mut errors);
        check_parent(new.at("spec"), &mut errors);
        metadata::change(new, &mut errors);
        let parent = |address: &Value| match address.at("spec").at("parentRef") {
            Value::Null => Value::Null,
            parent => declared::of(parent, &declared::PARENT_REFERENCE),
        };
        let path = Path::root("spec");
        immutable(&parent(new), &parent(old), &path.child("parentRef"), &mut errors);
        errors
    }
}

fn check_parent(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let path = path.child("parentRef");
    let parent = spec.at("parentRef");
    if parent.is_null() {
        return errors.required(&path, "");
    }
    if !parent.text("group").is_empty() {
        dns_subdomain(parent.text("group"), &path.child("group"), errors);
    }
    check_segment(parent, "resource", &path, errors);
    check_segment(parent, "name", &path, errors);
    if !parent.text("namespace").is_empty() {
        path_segment(parent.text("namespace"), &path.child("namespace"), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn the_parent_of_an_address_is_immutable() {
        let address = |parent: Value| json!({"spec": {"parentRef": parent}});
        let mine = address(json!({"resource": "services", "namespace": "a", "name": "b"}));
        check::create(&IPAddress, mine.clone(), &[]);
        check::create(&IPAddress, json!({"spec": {}}), &["Required spec.parentRef"]);
        check::create(
            &IPAddress,
            address(json!({"group": "A"})),
            &[
                "Invalid spec.parentRef.group",
                "Required spec.parentRef.resource",
                "Required spec.parentRef.name",
            ],
        );
        let other = address(json!({"resource": "services", "namespace": "a", "name": "c"}));
        check::update(&IPAddress, other, &mine, &["Invalid spec.parentRef"]);
        assert_eq!(shown(mine.at("spec").at("parentRef")), "services/a/b");
    }

    #[test]
    fn its_name_is_the_address_in_standard_form() {
        for (name, fine) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("010.0.0.1", false),
            ("FD00::1", false),
            ("::ffff:1.2.3.4", false),
            ("a", false),
        ] {
            assert_eq!(NameRule::Address.check(name, false).is_empty(), fine, "{name}");
        }
    }
}
