//! Rejects objects in missing namespaces, and new objects in terminating ones.

use serde_json::Value;
use setpoint_store::Resource;

use super::{Operation, Plugin, Review};
use crate::facts::Facts;
use crate::status::{Cause, Named, Status};

pub struct NamespaceLifecycle;

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
const NAMESPACES: Named<'static> = Named { group: "", resource: "namespaces" };

impl Plugin for NamespaceLifecycle {
    fn handles(&self, review: &Review<'_>) -> bool {
        match review.operation {
            Operation::Delete => review.is_for("", "namespaces"),
            Operation::Connect => false,
            // Access reviews are allowed for namespaces that do not exist yet.
            Operation::Create | Operation::Update => {
                review.namespace.is_some() && review.served.kind.group != "authorization.k8s.io"
            }
        }
    }

    async fn mutate(&self, review: &Review<'_>, object: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        let Some(namespace) = review.namespace else { return Ok(()) };
        let is_terminating = is_terminating(review, namespace).await?;
        if is_terminating && review.operation == Operation::Create {
            return Err(terminating(review, object, namespace));
        }
        Ok(())
    }

    async fn check(&self, review: &Review<'_>, _: Option<&Value>, _: Option<&Value>) -> Result<(), Status> {
        let deletes_immortal =
            review.operation == Operation::Delete && IMMORTAL.contains(&review.name.as_str());
        match deletes_immortal {
            true => Err(Status::forbidden(NAMESPACES, &review.name, "this namespace may not be deleted")),
            false => Ok(()),
        }
    }
}

/// Whether a namespace is being deleted; fails if it does not exist.
async fn is_terminating(review: &Review<'_>, namespace: &str) -> Result<bool, Status> {
    let server = review.server;
    let registry = server.registry.snapshot();
    let Some(served) = registry.resource("", "v1", "namespaces") else { return Ok(false) };
    let key = Resource::clone(&served.resource).key(namespace);
    let found = server.store.get(&key, None).await.map_err(|why| server.refusal(why))?;
    let record = found.ok_or_else(|| Status::not_found(NAMESPACES, namespace))?;
    // A namespace's phase becomes Terminating together with its deletion timestamp.
    Ok(Facts::of(&record, served).is_being_deleted())
}

fn terminating(review: &Review<'_>, object: &Value, namespace: &str) -> Status {
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = review.forbidden(Some(object), why);
    status.add_cause(Cause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".into(),
    });
    status
}
