//! Allows a claim to grow only if it is bound and its class allows expansion.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::json::Json;
use crate::kinds::resources::amount;
use crate::metadata;
use crate::status::Status;

pub struct PersistentVolumeClaimResize;

const NOT_RESIZABLE: &str = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";

impl Plugin for PersistentVolumeClaimResize {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Update && review.is_for("", "persistentvolumeclaims")
    }

    async fn check(
        &self,
        review: &Review<'_>,
        claim: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(claim), Some(old)) = (claim, old) else { return Ok(()) };
        if size(claim) <= size(old) {
            return Ok(());
        }
        if old.at("status").text("phase") != "Bound" {
            let why = "Only bound persistent volume claims can be expanded";
            return Err(review.forbidden(Some(claim), why));
        }
        match is_expandable(review, class(claim), class(old)).await? {
            true => Ok(()),
            false => Err(review.forbidden(Some(claim), NOT_RESIZABLE)),
        }
    }
}

fn size(claim: &Value) -> Option<crate::quantity::Quantity> {
    amount(claim.at("spec").at("resources").at("requests"), "storage")
}

fn class(claim: &Value) -> &str {
    let annotation = metadata::of(claim).at("annotations").text("volume.beta.kubernetes.io/storage-class");
    if annotation.is_empty() { claim.at("spec").text("storageClassName") } else { annotation }
}

async fn is_expandable(review: &Review<'_>, class: &str, old: &str) -> Result<bool, Status> {
    if class.is_empty() || class != old {
        return Ok(false);
    }
    let found = review.find("storage.k8s.io", "storageclasses", class).await?;
    Ok(found.is_some_and(|class| class.flag("allowVolumeExpansion")))
}
