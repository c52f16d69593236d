//! Validates a pod's resource claims.

use serde_json::Value;

use super::annotations::MIRROR;
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::names;
use crate::validation::{Seen, add_invalid, dns_label};

pub(super) fn check(spec: &Value, metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut names = Seen::new();
    for (index, claim) in spec.list("resourceClaims").iter().enumerate() {
        if metadata.at("annotations").has(MIRROR) {
            errors.forbidden(&Path::root(""), "static pods do not support resource claims");
            continue;
        }
        let path = path.index(index);
        match claim.text("name") {
            "" => errors.required(&path.child("name"), ""),
            name if names.again(name) => errors.duplicate(&path.child("name"), name),
            name => dns_label(name, &path.child("name"), errors),
        }
        check_reference(claim, &path, errors);
    }
}

fn check_reference(claim: &Value, path: &Path<'_>, errors: &mut Errors) {
    let fields = ["resourceClaimName", "resourceClaimTemplateName"];
    match fields.iter().filter(|field| claim.has(field)).count() {
        0 => {
            let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
            errors.invalid(path, declared::of(claim, &declared::POD_CLAIM), detail);
        }
        1 => {}
        _ => {
            let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
            errors.invalid(path, declared::of(claim, &declared::POD_CLAIM), detail);
        }
    }
    for field in fields {
        if let Some(name) = claim.at(field).as_str() {
            add_invalid(names::dns_subdomain(name), name, &path.child(field), errors);
        }
    }
}
