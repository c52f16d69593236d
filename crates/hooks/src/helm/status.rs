//! The status of an object with a release, in the form of the Operator SDK.                                   (pure)

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::manifest::shown;
use super::record::Record;
use crate::parents::with_conditions;
use crate::wire::AnsweredCondition;

/// The longest message of a condition. Notes and errors of Helm can be long.
const MAX_MESSAGE: usize = 8 << 10;

/// What became of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News<'a> {
    /// A revision is deployed. `holds`: it is what is wanted, or has just been.
    Deployed { release: &'a str, version: u64, record: &'a Record, holds: bool },
    /// Helm failed to install, upgrade or uninstall.
    Failed { reason: &'static str, why: &'a str },
    /// Nothing could be done.
    Irreconcilable(&'a str),
    /// The release is uninstalled. `waits`: its objects are not gone.
    Uninstalled { waits: bool },
}

/// Returns the new status.
pub(super) fn status(before: &Value, news: &News<'_>, generation: i64, now: Timestamp) -> Map<String, Value> {
    let mut status = before.as_object().cloned().unwrap_or_default();
    let is_going = matches!(news, News::Uninstalled { .. } | News::Failed { reason: "UninstallError", .. });
    let mut conditions = Vec::new();
    if !is_going {
        conditions.push(condition("Initialized", "True", "", ""));
    }
    match news {
        News::Deployed { release, version, record, holds } => {
            let reason = if *version == 1 { "InstallSuccessful" } else { "UpgradeSuccessful" };
            conditions.push(condition("Deployed", "True", reason, &record.notes));
            let mut deployed = json!({"name": release});
            if let Some(manifest) = shown(&record.manifest) {
                deployed["manifest"] = manifest.into();
            }
            status.insert("deployedRelease".into(), deployed);
            // Otherwise something else is wanted, and they say why it is not there.
            if *holds {
                remove(&mut status, "ReleaseFailed");
                remove(&mut status, "Irreconcilable");
            }
        }
        News::Failed { reason, why } => {
            conditions.push(condition("ReleaseFailed", "True", reason, why));
            remove(&mut status, "Irreconcilable");
        }
        News::Irreconcilable(why) => {
            conditions.push(condition("Irreconcilable", "True", "ReconcileError", why))
        }
        News::Uninstalled { waits } => {
            let message = if *waits { "Waiting until all resources are deleted." } else { "" };
            conditions.push(condition("Deployed", "False", "UninstallSuccessful", message));
            remove(&mut status, "ReleaseFailed");
            if !waits {
                status.remove("deployedRelease");
            }
        }
    }
    with_conditions(status, &conditions, before, generation, now)
}

fn remove(status: &mut Map<String, Value>, kind: &str) {
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        conditions.retain(|condition| condition["type"] != kind);
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> AnsweredCondition {
    let message = message.trim().chars().take(MAX_MESSAGE).collect();
    AnsweredCondition { kind: kind.into(), status: status.into(), reason: reason.into(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the conditions as `Type=Status/Reason`.
    fn after(before: &Value, news: &News<'_>) -> (Vec<String>, Value) {
        let now = "2025-01-01T00:00:00Z".parse().expect("a time");
        let status = status(before, news, 1, now);
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let conditions = status["conditions"].as_array().expect("a list").iter();
        let conditions = conditions
            .map(|one| format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason")));
        (conditions.collect(), status.into())
    }

    #[test]
    fn the_conditions_are_those_of_the_operator_sdk() {
        let record = Record { manifest: "---\n".into(), notes: "hello".into(), ..Record::default() };
        let deployed = |version, holds| News::Deployed { release: "shop", version, record: &record, holds };
        let (conditions, installed) = after(&Value::Null, &deployed(1, true));
        assert_eq!(conditions, ["Initialized=True/Initialized", "Deployed=True/InstallSuccessful"]);
        assert_eq!(installed["deployedRelease"], json!({"name": "shop", "manifest": "---\n"}));
        let (conditions, failed) = after(&installed, &News::Failed { reason: "UpgradeError", why: "no" });
        assert_eq!(conditions[1..], ["Deployed=True/InstallSuccessful", "ReleaseFailed=True/UpgradeError"]);
        let (conditions, _) = after(&failed, &deployed(3, false));
        assert_eq!(conditions[1..], ["Deployed=True/UpgradeSuccessful", "ReleaseFailed=True/UpgradeError"]);
        let (conditions, upgraded) = after(&failed, &deployed(4, true));
        assert_eq!(conditions[1..], ["Deployed=True/UpgradeSuccessful"]);
        let (conditions, odd) = after(&upgraded, &News::Irreconcilable("why"));
        assert_eq!(conditions[2], "Irreconcilable=True/ReconcileError");
        let (_, waiting) = after(&odd, &News::Uninstalled { waits: true });
        assert!(waiting["deployedRelease"].is_object());
        let (conditions, gone) = after(&failed, &News::Uninstalled { waits: false });
        assert_eq!(conditions[1..], ["Deployed=False/UninstallSuccessful"]);
        assert_eq!(gone.get("deployedRelease"), None);
    }
}
