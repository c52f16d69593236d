//! VolumeAttachments: attach a volume to a node.

use serde_json::{Value, json};

use super::{STORAGE, bytes_of};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{csi_driver_name, dns_subdomain, immutable, too_long};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column {
                format: "name",
                ..Column::text("Attacher", ATTACHER, |attachment, _| {
                    attachment.at("spec").text("attacher").into()
                })
            },
            Column::text("PV", VOLUME, |attachment, _| {
                attachment.at("spec").at("source").text("persistentVolumeName").into()
            }),
            Column::text("Node", NODE, |attachment, _| attachment.at("spec").text("nodeName").into()),
            Column {
                data_type: "boolean",
                ..Column::text("Attached", ATTACHED, |attachment, _| {
                    attachment.at("status").flag("attached").into()
                })
            },
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            unconditional_update: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::with_strict_status(|| json!({"attached": false}))
        },
        ..entry(&STORAGE, "VolumeAttachment", "volumeattachments", VolumeAttachment)
    }
}

const ATTACHER: &str = "attacher indicates the name of the volume driver that MUST handle this request. This is the name returned by GetPluginName().";
const VOLUME: &str = "persistentVolumeName represents the name of the persistent volume to attach.";
const NODE: &str = "nodeName represents the node that the volume should be attached to.";
const ATTACHED: &str = "attached indicates the volume is successfully attached. This field must only be set by the entity completing the attach operation, i.e. the external-attacher.";
const METADATA_BYTES: usize = 256 << 10;
const MESSAGE_BYTES: usize = 1024;
const ERRORS: [&str; 2] = ["attachError", "detachError"];

struct VolumeAttachment;

impl Lifecycle for VolumeAttachment {
    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        (subresource == Some(Subresource::Status)).then_some(&[&["spec"], &["metadata"]])
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        drop_error_codes(new, old);
    }
}

impl Validation for VolumeAttachment {
    fn validate(&self, attachment: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(attachment, &mut errors);
        check(attachment, &mut errors);
        check_new(attachment.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        // Twice, as v1.34 does.
        for _ in 0..2 {
            metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
            check(new, &mut errors);
        }
        let spec = |attachment: &Value| declared::of(attachment.at("spec"), &declared::VOLUME_ATTACHMENT);
        immutable(&spec(new), &spec(old), &Path::root("spec"), &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        self.validate_update(new, old)
    }
}

/// Drops error codes, which v1.34 disables, unless already present.
fn drop_error_codes(new: &mut Value, old: &Value) {
    for field in ERRORS {
        if !old.at("status").at(field).has("errorCode")
            && let Some(error) = new.at_mut("status").and_then(|status| status.at_mut(field))
        {
            error.unset("errorCode");
        }
    }
}

fn check(attachment: &Value, errors: &mut Errors) {
    let (spec, path) = (attachment.at("spec"), Path::root("spec"));
    if spec.text("attacher").is_empty() {
        errors.required(&path.child("attacher"), "");
    }
    check_source(spec.at("source"), &path.child("source"), errors);
    dns_subdomain(spec.text("nodeName"), &path.child("nodeName"), errors);
    check_status(attachment.at("status"), errors);
}

fn check_source(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), source.at("persistentVolumeName").as_str()) {
        (false, None) => errors.required(path, exactly_one),
        (true, Some(_)) => errors.forbidden(path, exactly_one),
        (false, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.required(&path.child("persistentVolumeName"), detail);
        }
        (true, None) => check_inline(source.at("inlineVolumeSpec"), &path.child("inlineVolumeSpec"), errors),
        _ => {}
    }
}

/// Validates an inline volume spec.
fn check_inline(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let misplaced = "may not be specified in the context of inline volumes";
    if spec.has("claimRef") {
        errors.forbidden(&path.child("claimRef"), misplaced);
    }
    if spec.map("capacity").is_some_and(|capacity| !capacity.is_empty()) {
        errors.forbidden(&path.child("capacity"), misplaced);
    }
    if !spec.has("csi") {
        errors.required(&path.child("csi"), "has to be specified in the context of inline volumes");
    }
    if spec.list("accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
}

fn check_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    if bytes_of(status.at("attachmentMetadata")) > METADATA_BYTES {
        too_long(METADATA_BYTES, &path.child("attachmentMetadata"), errors);
    }
    for field in ERRORS {
        let (error, path) = (status.at(field), path.child(field));
        if error.text("message").len() > MESSAGE_BYTES {
            // v1.34 reports a different limit.
            too_long(METADATA_BYTES, &path.child("message"), errors);
        }
        if let Some(code) = error.int("errorCode").filter(|code| *code < 0) {
            errors.invalid(&path.child("errorCode"), code, "must be between 0 and 2147483647, inclusive");
        }
    }
}

/// Validates what only applies to new attachments.
fn check_new(spec: &Value, errors: &mut Errors) {
    csi_driver_name(spec.text("attacher"), &Path::root("spec.attacher"), errors);
    if let Some(name) = spec.at("source").at("persistentVolumeName").as_str() {
        dns_subdomain(name, &Path::root("spec.source.persistentVolumeName"), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;

    fn attachment(volume: &str) -> Value {
        json!({"spec": {"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": volume}}})
    }

    #[test]
    fn an_attachment_has_a_source_a_node_and_an_attacher() {
        checking::create(&VolumeAttachment, attachment("v"), &[]);
        checking::create(
            &VolumeAttachment,
            json!({"spec": {}}),
            &[
                "Required spec.attacher",
                "Required spec.source",
                "Invalid spec.nodeName",
                "Required spec.attacher",
                "Invalid spec.attacher",
            ],
        );
    }

    #[test]
    fn the_spec_of_an_attachment_is_immutable() {
        checking::update(&VolumeAttachment, attachment("w"), &attachment("v"), &["Invalid spec"]);
    }

    #[test]
    fn errors_come_without_codes() {
        let mut new = json!({"status": {"attachError": {"message": "m", "errorCode": 8}}});
        VolumeAttachment.prepare_for_status_update(&mut new, &json!({}));
        assert_eq!(new["status"], json!({"attachError": {"message": "m"}}));
    }
}
