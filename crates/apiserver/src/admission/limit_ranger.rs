//! LimitRanges: sets defaults on pods when mutating, checks the limits of pods and claims when validating.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::json::Json;
use crate::kind::Subresource;
use crate::kinds::limitrange::admission;
use crate::metadata;
use crate::status::Status;

pub struct LimitRanger;

/// An object that limits apply to.
#[derive(Clone, Copy)]
enum Limited {
    Pod,
    Claim,
}

/// Selects pods on create and resize, and claims on every write.
fn limited(review: &Review<'_>) -> Option<Limited> {
    let kind = &review.served.kind;
    match (kind.group.as_str(), kind.plural.as_str(), review.operation, review.subresource) {
        ("", "pods", Operation::Create, None) => Some(Limited::Pod),
        ("", "pods", Operation::Update, Some(Subresource::Resize)) => Some(Limited::Pod),
        ("", "persistentvolumeclaims", Operation::Create | Operation::Update, None) => Some(Limited::Claim),
        _ => None,
    }
}

impl Plugin for LimitRanger {
    fn handles(&self, review: &Review<'_>) -> bool {
        limited(review).is_some()
    }

    async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if let (Some(Limited::Pod), false) = (limited(review), is_terminating(old)) {
            admission::default_pod(&ranges(review).await?, object);
        }
        Ok(())
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(object), Some(limited), false) = (object, limited(review), is_terminating(old)) else {
            return Ok(());
        };
        let ranges = ranges(review).await?;
        let verdict = match limited {
            Limited::Pod => admission::check_pod(&ranges, object),
            Limited::Claim => admission::check_claim(&ranges, object),
        };
        verdict.map_err(|why| review.forbidden(Some(object), why))
    }
}

fn is_terminating(old: Option<&Value>) -> bool {
    old.is_some_and(|old| metadata::of(old).has("deletionTimestamp"))
}

/// Returns the LimitRanges in the namespace; usually none.
async fn ranges(review: &Review<'_>) -> Result<Vec<Value>, Status> {
    let server = review.server;
    let registry = server.registry.snapshot();
    let Some(served) = registry.resource("", "v1", "limitranges") else { return Ok(Vec::new()) };
    let range = served.range(review.namespace);
    let options = setpoint_store::ListOptions::default();
    let page = server.store.list(&range, options).await.map_err(|why| server.refusal(why))?;
    page.records.iter().map(|record| served.decode_bare(record)).collect()
}
