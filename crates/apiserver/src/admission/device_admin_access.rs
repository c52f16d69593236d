//! Allows admin access to devices in use only in namespaces labeled for it.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::Subresource;
use crate::metadata;
use crate::registry::Gvr;
use crate::status::{Named, Status};

pub struct DeviceAdminAccess;

const LABEL: &str = "resource.kubernetes.io/admin-access";

impl Plugin for DeviceAdminAccess {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation != Operation::Delete
            && review.served.kind.group == "resource.k8s.io"
            && matches!(review.served.kind.plural.as_str(), "resourceclaims" | "resourceclaimtemplates")
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        match requested_field(review, object, old) {
            Some(field) if !is_namespace_labelled(review).await? => Err(refusal(review, object, &field)),
            _ => Ok(()),
        }
    }
}

/// Returns the field that newly requests admin access.
fn requested_field(review: &Review<'_>, object: &Value, old: Option<&Value>) -> Option<String> {
    let spec = object.at("spec");
    let spec = if review.served.kind.kind == "ResourceClaimTemplate" { spec.at("spec") } else { spec };
    let results =
        |claim: &'_ Value| claim.at("status").at("allocation").at("devices").list("results").to_vec();
    let granted = |results: &[Value]| results.iter().position(|result| result.flag("adminAccess"));
    match (old, review.subresource) {
        (None, _) => {
            let mut requests = spec.at("devices").list("requests").iter();
            let index = requests.position(|request| request.at("exactly").flag("adminAccess"))?;
            Some(format!("spec.devices.requests[{index}].adminAccess"))
        }
        (Some(old), Some(Subresource::Status)) if granted(&results(old)).is_none() => {
            let index = granted(&results(object))?;
            Some(format!("status.allocation.devices.results[{index}].adminAccess"))
        }
        _ => None,
    }
}

async fn is_namespace_labelled(review: &Review<'_>) -> Result<bool, Status> {
    let server = review.server;
    let served = server.served(&Gvr::new("", "v1", "namespaces"))?;
    let key = served.key(None, review.namespace.unwrap_or_default());
    let found = server.store.get(&key, None).await.map_err(|why| server.refusal(why))?;
    Ok(found.is_some_and(|record| crate::facts::Facts::of(&record, &served).label(LABEL) == Some("true")))
}

fn refusal(review: &Review<'_>, object: &Value, field: &str) -> Status {
    let mut errors = Errors::default();
    let detail =
        format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    errors.forbidden(&Path::root(field), detail);
    Status::invalid(Named::kind(&review.served.kind), metadata::of(object).text("name"), &errors)
}
