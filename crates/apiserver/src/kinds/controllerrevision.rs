//! ControllerRevisions: immutable snapshots of what a controller rolls out.

use serde_json::Value;

use super::{APPS, entry};
use crate::json::Json;
use crate::kind::Kind;
use crate::strategy::Strategy;
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        columns: vec![
            Column::name(),
            Column::text("Controller", "Controller of the object", |revision, _| controller(revision).into()),
            Column::text("Revision", REVISION, |revision, _| revision.count("revision").into()),
            Column::age(),
        ],
        ..entry(&APPS, "ControllerRevision", "controllerrevisions", ControllerRevision)
    }
}

const REVISION: &str = "revision indicates the revision of the state represented by Data.";

/// `statefulset.apps/web`
fn controller(revision: &Value) -> String {
    let owners = revision.at("metadata").list("ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner.flag("controller")) else { return "<none>".into() };
    let kind = owner.text("kind").to_lowercase();
    match owner.text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", owner.text("name")),
        None => format!("{kind}/{}", owner.text("name")),
    }
}

struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn counts_generations(&self) -> bool {
        false
    }
}
