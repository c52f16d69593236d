//! Sets the cluster's default class on claims and ingresses without one. If there are several defaults, the newest
//! wins.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::status::Status;

/// Sets the default class of claims.
pub struct DefaultStorageClass;
/// Sets the default class of ingresses.
pub struct DefaultIngressClass;

/// A resource of classes, and the annotations that mark the default.
struct Classes {
    group: &'static str,
    plural: &'static str,
    marks: &'static [&'static str],
}

const STORAGE: Classes = Classes {
    group: "storage.k8s.io",
    plural: "storageclasses",
    marks: &[
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ],
};
const INGRESS: Classes = Classes {
    group: "networking.k8s.io",
    plural: "ingressclasses",
    marks: &["ingressclass.kubernetes.io/is-default-class"],
};

impl Plugin for DefaultStorageClass {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is_for("", "persistentvolumeclaims")
    }

    async fn mutate(&self, review: &Review<'_>, claim: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        const ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
        let has_class = claim.at("spec").has("storageClassName") || is_annotated(claim, ANNOTATION);
        default(review, claim, "storageClassName", has_class, &STORAGE).await
    }
}

impl Plugin for DefaultIngressClass {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && review.is_for("networking.k8s.io", "ingresses")
    }

    async fn mutate(
        &self,
        review: &Review<'_>,
        ingress: &mut Value,
        _: Option<&Value>,
    ) -> Result<(), Status> {
        const ANNOTATION: &str = "kubernetes.io/ingress.class";
        let has_class = ingress.at("spec").has("ingressClassName") || is_annotated(ingress, ANNOTATION);
        default(review, ingress, "ingressClassName", has_class, &INGRESS).await
    }
}

fn is_annotated(object: &Value, annotation: &str) -> bool {
    metadata::of(object).at("annotations").has(annotation)
}

async fn default(
    review: &Review<'_>,
    object: &mut Value,
    field: &str,
    has_class: bool,
    classes: &Classes,
) -> Result<(), Status> {
    if has_class {
        return Ok(());
    }
    if let Some(name) = newest_default(review, classes).await? {
        object.object_mut("spec").set(field, name);
    }
    Ok(())
}

async fn newest_default(review: &Review<'_>, classes: &Classes) -> Result<Option<String>, Status> {
    let all = review.list(classes.group, classes.plural, None).await?;
    let is_default = |class: &&Value| {
        let annotations = metadata::of(class).at("annotations");
        classes.marks.iter().any(|mark| annotations.text(mark) == "true")
    };
    // Lists are sorted by name: if several were created in the same second, the first name wins.
    let newest = all
        .iter()
        .filter(is_default)
        .rev()
        .max_by_key(|class| metadata::of(class).text("creationTimestamp").to_owned());
    Ok(newest.map(|class| metadata::of(class).text("name").to_owned()))
}
