//! Computes a CRD's status: which of its names are accepted, and whether it is served. Pure functions.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json::{Json, JsonMut};
use crate::{metadata, tls};

/// A condition of a CRD.
pub(crate) struct Condition<'a> {
    pub kind: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}

/// Whether a condition of a CRD is true.
pub(crate) fn is_true(definition: &Value, kind: &str) -> bool {
    condition(definition, kind).is_some_and(|condition| condition.text("status") == "True")
}

/// Returns the reason of a condition of a CRD.
pub(super) fn reason<'v>(definition: &'v Value, kind: &str) -> Option<&'v str> {
    condition(definition, kind).map(|condition| condition.text("reason"))
}

fn condition<'v>(definition: &'v Value, kind: &str) -> Option<&'v Value> {
    definition.at("status").list("conditions").iter().find(|condition| condition.text("type") == kind)
}

/// Sets a condition. Keeps its transition time if the status is unchanged.
pub(crate) fn set_condition(definition: &mut Value, new: &Condition<'_>, now: Timestamp) {
    let status = definition.object_mut("status");
    let mut conditions = status.list("conditions").to_vec();
    let time = Value::from(metadata::seconds(now));
    let old = conditions.iter().position(|condition| condition.text("type") == new.kind);
    let kept = old.map(|at| &conditions[at]).filter(|old| old.text("status") == new.status);
    let time = kept.map_or(time, |old| old.at("lastTransitionTime").clone());
    let condition = json!({
        "lastTransitionTime": time,
        "message": new.message,
        "reason": new.reason,
        "status": new.status,
        "type": new.kind,
    });
    match old {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    status.set("conditions", conditions);
}

/// Returns the CRD with its proper status, given all others; unchanged if there is nothing to do.
pub(super) fn settled(definition: &Value, others: &[&Value], now: Timestamp) -> Value {
    let mut settled = definition.clone();
    accept_names(&mut settled, others, now);
    if is_true(&settled, "NamesAccepted") && !is_true(&settled, "Established") {
        let (status, reason, message) = match has_valid_bundle(&settled) {
            true => ("True", "InitialNamesAccepted", "the initial names have been accepted"),
            false => ("False", "InvalidCABundle", "The conversion webhook CABundle is invalid"),
        };
        let established = Condition { kind: "Established", status, reason, message };
        set_condition(&mut settled, &established, now);
    }
    note_approval(&mut settled, now);
    settled
}

/// Whether the CA bundle of the conversion webhook is valid, if there is one.
pub(crate) fn has_valid_bundle(definition: &Value) -> bool {
    let webhook = definition.at("spec").at("conversion").at("webhook");
    tls::bundle_problem(webhook.at("clientConfig").text("caBundle")).is_none()
}

/// The accepted names of the CRDs in a group.
struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    fn of(group: &str, definitions: &[&Value]) -> Self {
        let mut taken = Self { resources: BTreeSet::new(), kinds: BTreeSet::new() };
        let same = definitions.iter().filter(|definition| definition.at("spec").text("group") == group);
        for names in same.map(|definition| definition.at("status").at("acceptedNames")) {
            let short = names.list("shortNames").iter().filter_map(Value::as_str);
            let resources = [names.text("plural"), names.text("singular")].into_iter().chain(short);
            taken.resources.extend(resources.map(Into::into));
            taken.kinds.extend([names.text("kind"), names.text("listKind")].map(Into::into));
        }
        taken
    }
}

fn accept_names(definition: &mut Value, others: &[&Value], now: Timestamp) {
    let wanted = definition.at("spec").at("names").clone();
    let accepted = definition.at("status").at("acceptedNames").clone();
    if wanted == accepted {
        return;
    }
    let taken = Taken::of(definition.at("spec").text("group"), others);
    let mut given = accepted.clone();
    let mut conflict: Option<(&str, String)> = None;
    let is_free = |name: &str, own: &str, taken: &BTreeSet<String>| name == own || !taken.contains(name);
    let fields = [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ];
    for (field, reason, taken) in fields {
        let in_use: Vec<String> = match field {
            "shortNames" => {
                let own: Vec<&str> = accepted.list(field).iter().filter_map(Value::as_str).collect();
                let names = wanted.list(field).iter().filter_map(Value::as_str);
                names.filter(|name| !own.contains(name) && taken.contains(*name)).map(Into::into).collect()
            }
            _ => {
                let name = wanted.text(field);
                let conflicts = !is_free(name, accepted.text(field), taken);
                conflicts.then(|| name.to_owned()).into_iter().collect()
            }
        };
        match in_use.is_empty() {
            true => given.restore(field, &wanted),
            false => conflict = Some((reason, in_use_message(&in_use))),
        }
    }
    given.restore("categories", &wanted);
    definition.object_mut("status").set("acceptedNames", given);
    report_names(definition, conflict.as_ref(), now);
}

fn in_use_message(names: &[String]) -> String {
    let each: Vec<String> = names.iter().map(|name| format!("{name:?} is already in use")).collect();
    match each.as_slice() {
        [only] => only.clone(),
        _ => format!("[{}]", each.join(", ")),
    }
}

fn report_names(definition: &mut Value, conflict: Option<&(&str, String)>, now: Timestamp) {
    let (status, reason, message) = match conflict {
        Some((reason, message)) => ("False", *reason, message.as_str()),
        None => ("True", "NoConflicts", "no conflicts found"),
    };
    set_condition(definition, &Condition { kind: "NamesAccepted", status, reason, message }, now);
    if condition(definition, "Established").is_none() {
        let waiting = Condition {
            kind: "Established",
            status: "False",
            reason: "NotAccepted",
            message: "not all names are accepted",
        };
        set_condition(definition, &waiting, now);
    }
}

pub(crate) const APPROVED: &str = "api-approved.kubernetes.io";

/// Whether a group is reserved for community APIs, which need approval.
pub(crate) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// The approval state of a CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Missing,
    Bypassed,
    Approved,
    Invalid,
}

pub(crate) fn approval(definition: &Value) -> (Approval, String) {
    let text = metadata::of(definition).at("annotations").text(APPROVED);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let has_host = text.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split(['/', '?']).next().unwrap_or_default();
        !scheme.is_empty() && scheme.chars().all(|letter| letter.is_ascii_alphanumeric()) && !host.is_empty()
    });
    match text {
        "" => {
            (Approval::Missing, format!("protected groups must have approval annotation {APPROVED:?}, {see}"))
        }
        _ if text.starts_with("unapproved") => (Approval::Bypassed, format!("not approved: {text:?}")),
        _ if has_host => (Approval::Approved, format!("approved in {text}")),
        _ => (
            Approval::Invalid,
            format!(
                "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \"unapproved\", {see}"
            ),
        ),
    }
}

fn note_approval(definition: &mut Value, now: Timestamp) {
    if !is_protected(definition.at("spec").text("group")) {
        return;
    }
    let (approval, message) = approval(definition);
    let (status, reason) = match approval {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
    };
    let kind = "KubernetesAPIApprovalPolicyConformant";
    let new = Condition { kind, status, reason, message: &message };
    let is_same = condition(definition, kind).is_some_and(|old| {
        old.text("status") == status && old.text("reason") == reason && old.text("message") == message
    });
    if !is_same {
        set_condition(definition, &new, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, short: &str) -> Value {
        let names = json!({"plural": plural, "singular": "x", "kind": plural, "listKind": format!("{plural}List"), "shortNames": [short]});
        json!({"metadata": {"name": plural}, "spec": {"group": "e.com", "names": names}, "status": {}})
    }

    #[test]
    fn a_definition_with_an_untrusted_webhook_is_not_served() {
        let now = Timestamp::UNIX_EPOCH;
        let mut definition = definition("foos", "f");
        definition["spec"]["conversion"] = json!({"webhook": {"clientConfig": {"caBundle": "Cg=="}}});
        let unsettled = settled(&definition, &[], now);
        let established = condition(&unsettled, "Established").unwrap();
        assert_eq!((established.text("status"), established.text("reason")), ("False", "InvalidCABundle"));
        assert_eq!(settled(&unsettled, &[], now), unsettled, "a second run changes nothing");
        let mut mended = unsettled;
        mended["spec"]["conversion"]["webhook"]["clientConfig"].unset("caBundle");
        assert!(is_true(&settled(&mended, &[], now), "Established"));
    }

    #[test]
    fn a_name_goes_to_the_first_definition() {
        let now = Timestamp::UNIX_EPOCH;
        let first = settled(&definition("foos", "f"), &[], now);
        assert!(is_true(&first, "Established"));
        assert_eq!(settled(&first, &[], now), first, "a second run changes nothing");
        let mut second = definition("bars", "f");
        second["spec"]["names"]["singular"] = "bar".into();
        let second = settled(&second, &[&first], now);
        assert!(!is_true(&second, "NamesAccepted") && !is_true(&second, "Established"));
        assert_eq!(condition(&second, "NamesAccepted").unwrap().text("reason"), "ShortNamesConflict");
        assert_eq!(second["status"]["acceptedNames"]["plural"], "bars");
    }
}
