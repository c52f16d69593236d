//! Rejects privileged containers if the server is started with `--allow-privileged=false`.
//!
//! v1.34 does this in validation; the response is the same.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::metadata;
use crate::status::{Named, Status};

pub struct NoPrivilegedContainers;

const GROUPS: [&str; 3] = ["", "apps", "batch"];
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

impl Plugin for NoPrivilegedContainers {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation != Operation::Delete && GROUPS.contains(&review.served.kind.group.as_str())
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        _: Option<&Value>,
    ) -> Result<(), Status> {
        object.map_or(Ok(()), |object| refuse(review, object))
    }
}

fn refuse(review: &Review<'_>, object: &Value) -> Result<(), Status> {
    let mut errors = Errors::default();
    let (spec, template) = (Path::root("spec"), Path::root("template"));
    match review.served.kind.kind.as_str() {
        "Pod" => check(object.at("spec"), &spec, &mut errors),
        "PodTemplate" => check(object.at("template").at("spec"), &template.child("spec"), &mut errors),
        "CronJob" => {
            let found = object.at("spec").at("jobTemplate").at("spec").at("template").at("spec");
            let path = spec.child("jobTemplate");
            let path = path.child("spec");
            let path = path.child("template");
            check(found, &path.child("spec"), &mut errors);
        }
        _ => {
            let path = spec.child("template");
            check(object.at("spec").at("template").at("spec"), &path.child("spec"), &mut errors);
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let kind = &review.served.kind;
            let of = Named { group: &kind.group, resource: &kind.kind };
            Err(Status::invalid(of, metadata::of(object).text("name"), &errors))
        }
    }
}

/// Checks a pod's containers; a missing pod has no errors.
fn check(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for list in CONTAINERS {
        let path = path.child(list);
        for (at, container) in spec.list(list).iter().enumerate() {
            if container.at("securityContext").flag("privileged") {
                let item = path.index(at);
                let context = item.child("securityContext");
                errors.forbidden(&context.child("privileged"), "disallowed by cluster policy");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_privileged_container_is_named() {
        let privileged = json!({"securityContext": {"privileged": true}});
        let spec = json!({"containers": [{}, privileged], "initContainers": [privileged]});
        let mut errors = Errors::default();
        check(&spec, &Path::root("spec"), &mut errors);
        let fields: Vec<&str> = errors.0.iter().map(|error| error.field.as_str()).collect();
        let expected = [
            "spec.containers[1].securityContext.privileged",
            "spec.initContainers[0].securityContext.privileged",
        ];
        assert_eq!(fields, expected);
        check(&Value::Null, &Path::root("spec"), &mut errors);
        assert_eq!(errors.0.len(), 2);
    }
}
