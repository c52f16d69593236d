//! PriorityLevelConfigurations: shares of the server's capacity.

use serde_json::{Value, json};

use super::{EXEMPT, FLOW_CONTROL, bootstrap, check_status, is_same};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::{entry, metadata};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::in_range;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("Type", TYPE, |level, _| level.at("spec").text("type").into()),
            Column::text("NominalConcurrencyShares", SHARES, |level, _| shares(level.at("spec"))),
            Column::text("Queues", QUEUES, |level, _| queuing(level, "queues")),
            Column::text("HandSize", HAND_SIZE, |level, _| queuing(level, "handSize")),
            Column::text("QueueLengthLimit", QUEUE_LENGTH, |level, _| queuing(level, "queueLengthLimit")),
            Column::age(),
        ],
        semantics: Semantics::with_strict_status(|| json!({})),
        ..entry(&FLOW_CONTROL, "PriorityLevelConfiguration", "prioritylevelconfigurations", PriorityLevel)
    }
}

const TYPE: &str = "`type` indicates whether this priority level is subject to limitation on request execution.  A value of `\"Exempt\"` means that requests of this priority level are not subject to a limit (and thus are never queued) and do not detract from the capacity made available to other priority levels.  A value of `\"Limited\"` means that (a) requests of this priority level _are_ subject to limits and (b) some of the server's limited capacity is made available exclusively to this priority level. Required.";
const SHARES: &str = "`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit (NominalCL) of this level. This is the number of execution seats available at this priority level. This is used both for requests dispatched from this priority level as well as requests dispatched from other priority levels borrowing seats from this level. The server's concurrency limit (ServerCL) is divided among the Limited priority levels in proportion to their NCS values:\n\nNominalCL(i)  = ceil( ServerCL * NCS(i) / sum_ncs ) sum_ncs = sum[priority level k] NCS(k)\n\nBigger numbers mean a larger nominal concurrency limit, at the expense of every other priority level.\n\nIf not specified, this field defaults to a value of 30.\n\nSetting this field to zero supports the construction of a \"jail\" for this priority level that is used to hold some request(s)";
const QUEUES: &str = "`queues` is the number of queues for this priority level. The queues exist independently at each apiserver. The value must be positive.  Setting it to 1 effectively precludes shufflesharding and thus makes the distinguisher method of associated flow schemas irrelevant.  This field has a default value of 64.";
const HAND_SIZE: &str = "`handSize` is a small positive number that configures the shuffle sharding of requests into queues.  When enqueuing a request at this priority level the request's flow identifier (a string pair) is hashed and the hash value is used to shuffle the list of queues and deal a hand of the size specified here.  The request is put into one of the shortest queues in that hand. `handSize` must be no larger than `queues`, and should be significantly smaller (so that a few heavy flows do not saturate most of the queues).  See the user-facing documentation for more extensive guidance on setting this field.  This field has a default value of 8.";
const QUEUE_LENGTH: &str = "`queueLengthLimit` is the maximum number of requests allowed to be waiting in a given queue of this priority level at a time; excess requests are rejected.  This value must be positive.  If not specified, it will be defaulted to 50.";
const ROUND_TRIP: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
const MAX_QUEUES: i64 = 10_000_000;
/// Bits in the hash that assigns flows to queues.
const HASH_BITS: u32 = 60;

fn number_or_none(value: &Value) -> Value {
    if value.is_null() { "<none>".into() } else { value.clone() }
}

fn shares(spec: &Value) -> Value {
    number_or_none(spec.at("limited").at("nominalConcurrencyShares"))
}

fn queuing(level: &Value, field: &str) -> Value {
    number_or_none(level.at("spec").at("limited").at("limitResponse").at("queuing").at(field))
}

struct PriorityLevel;

impl Lifecycle for PriorityLevel {
    fn default(&self, level: &mut Value) {
        let Some(spec) = level.at_mut("spec") else { return };
        for (field, shares) in [("limited", 30), ("exempt", 0)] {
            if let Some(configuration) = spec.at_mut(field) {
                configuration.or_insert("nominalConcurrencyShares", shares);
                configuration.or_insert("lendablePercent", 0);
            }
        }
        let response = spec.at_mut("limited").and_then(|limited| limited.at_mut("limitResponse"));
        if let Some(queuing) = response.and_then(|response| response.at_mut("queuing")) {
            queuing.or_int("handSize", 8);
            queuing.or_int("queues", 64);
            queuing.or_int("queueLengthLimit", 50);
        }
    }

    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        Some(match subresource {
            None => &[&["status"]],
            Some(_) => &[&["metadata"], &["spec"]],
        })
    }
}

impl Validation for PriorityLevel {
    fn validate(&self, level: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(level, &mut errors);
        check(level, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
        check(new, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        check_status(new, &mut errors);
        errors
    }
}

fn check(level: &Value, errors: &mut Errors) {
    if level.at("metadata").at("annotations").has(ROUND_TRIP) {
        let path = Path::root("metadata");
        errors.forbidden(&path.child("annotations"), format!("annotation '{ROUND_TRIP}' is forbidden"));
    }
    let (name, spec) = (level.at("metadata").text("name"), level.at("spec"));
    check_spec(spec, name, errors);
    check_fixed(spec, name, errors);
    check_status(level, errors);
}

fn check_fixed(spec: &Value, name: &str, errors: &mut Errors) {
    let Some(fixed) = bootstrap::fixed(bootstrap::priority_levels(), name) else { return };
    let mut compared = spec.clone();
    let but = if name == EXEMPT { " except the 'spec.exempt' field" } else { "" };
    if name == EXEMPT {
        compared.restore("exempt", &fixed);
    }
    if !is_same(&fixed, &compared) {
        let detail = format!("spec of '{name}'{but} must equal the fixed value");
        errors.invalid(&Path::root("spec"), spec.clone(), detail);
    }
}

fn check_spec(spec: &Value, name: &str, errors: &mut Errors) {
    let path = Path::root("spec");
    let level_type = spec.text("type");
    if (name == EXEMPT) != (level_type == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&path.child("type"), level_type, detail);
    }
    match level_type {
        "Exempt" => {
            if spec.has("limited") {
                errors.forbidden(&path.child("limited"), "must be nil if the type is not Limited");
            }
            if spec.has("exempt") {
                check_share(spec.at("exempt"), &path.child("exempt"), errors);
                check_lending(spec.at("exempt"), &path.child("exempt"), errors);
            }
        }
        "Limited" => {
            if spec.has("exempt") {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
            match spec.has("limited") {
                false => errors.required(&path.child("limited"), "must not be empty when type is Limited"),
                true => check_limited(spec.at("limited"), &path.child("limited"), errors),
            }
        }
        other => errors.not_supported(&path.child("type"), other, &["Exempt", "Limited"]),
    }
}

fn check_share(configuration: &Value, path: &Path<'_>, errors: &mut Errors) {
    let field = "nominalConcurrencyShares";
    if let Some(shares) = configuration.int(field).filter(|shares| *shares < 0) {
        errors.invalid(&path.child(field), shares, "must be a non-negative integer");
    }
}

fn check_lending(configuration: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(percent) = configuration.int("lendablePercent") {
        in_range(percent, 0, 100, &path.child("lendablePercent"), errors);
    }
}

fn check_limited(limited: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_share(limited, path, errors);
    check_response(limited.at("limitResponse"), &path.child("limitResponse"), errors);
    check_lending(limited, path, errors);
    let field = "borrowingLimitPercent";
    if let Some(percent) = limited.int(field).filter(|percent| *percent < 0) {
        errors.invalid(&path.child(field), percent, "if specified, must be a non-negative integer");
    }
}

fn check_response(response: &Value, path: &Path<'_>, errors: &mut Errors) {
    let queuing = path.child("queuing");
    match (response.text("type"), response.has("queuing")) {
        ("Reject", true) => {
            errors.forbidden(&queuing, "must be nil if limited.limitResponse.type is not Limited");
        }
        ("Reject", false) => {}
        ("Queue", false) => {
            errors.required(&queuing, "must not be empty if limited.limitResponse.type is Limited");
        }
        ("Queue", true) => check_queuing(response.at("queuing"), &queuing, errors),
        (other, _) => errors.not_supported(&path.child("type"), other, &["Queue", "Reject"]),
    }
}

fn check_queuing(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    let positive = |field: &str, errors: &mut Errors| {
        let number = queuing.count(field);
        if number <= 0 {
            errors.invalid(&path.child(field), number, "must be positive");
        }
        number
    };
    positive("queueLengthLimit", errors);
    let queues = positive("queues", errors);
    if queues > MAX_QUEUES {
        errors.invalid(&path.child("queues"), queues, format!("must not be greater than {MAX_QUEUES}"));
    }
    let hand = positive("handSize", errors);
    if hand <= 0 {
        return;
    }
    if hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.invalid(&path.child("handSize"), hand, detail);
    } else if entropy_bits(queues, hand) > HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        errors.invalid(&path.child("handSize"), hand, detail);
    }
}

/// Returns the bits needed to deal a hand: those of the deck size for every card.
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    (((deck as f64).log2() * hand as f64).ceil()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check as checking;

    fn limited(limited: Value) -> Value {
        json!({"spec": {"type": "Limited", "limited": limited}})
    }

    #[test]
    fn a_level_has_a_limit_and_a_limit_response() {
        checking::create(&PriorityLevel, limited(json!({"limitResponse": {"type": "Reject"}})), &[]);
        checking::create(
            &PriorityLevel,
            limited(json!({"limitResponse": {"type": "Queue", "queuing": {}}})),
            &[],
        );
        checking::create(&PriorityLevel, json!({"spec": {"type": "Limited"}}), &["Required spec.limited"]);
        checking::create(&PriorityLevel, json!({"spec": {"type": "Exempt"}}), &["Invalid spec.type"]);
        checking::create(&PriorityLevel, json!({"spec": {"type": "X"}}), &["NotSupported spec.type"]);
        checking::create(
            &PriorityLevel,
            limited(json!({"nominalConcurrencyShares": -1, "lendablePercent": 101, "limitResponse": {}})),
            &[
                "Invalid spec.limited.nominalConcurrencyShares",
                "NotSupported spec.limited.limitResponse.type",
                "Invalid spec.limited.lendablePercent",
            ],
        );
    }

    #[test]
    fn hands_are_dealt_from_the_queues() {
        let queues =
            |queuing: Value| limited(json!({"limitResponse": {"type": "Queue", "queuing": queuing}}));
        let path = "Invalid spec.limited.limitResponse.queuing";
        checking::create(
            &PriorityLevel,
            queues(json!({"queues": 4, "handSize": 5})),
            &[&format!("{path}.handSize")],
        );
        checking::create(
            &PriorityLevel,
            queues(json!({"queues": 1024, "handSize": 7})),
            &[&format!("{path}.handSize")],
        );
        checking::create(
            &PriorityLevel,
            queues(json!({"queues": -1, "handSize": -1, "queueLengthLimit": -1})),
            &[&format!("{path}.queueLengthLimit"), &format!("{path}.queues"), &format!("{path}.handSize")],
        );
    }

    #[test]
    fn built_in_priority_levels_are_valid_and_fixed_ones_immutable() {
        for level in bootstrap::priority_levels() {
            checking::create(&PriorityLevel, level, &[]);
        }
        let mut fixed = bootstrap::priority_levels().remove(0);
        fixed["spec"]["limited"]["nominalConcurrencyShares"] = json!(6);
        checking::create(&PriorityLevel, fixed, &["Invalid spec"]);
        let mut exempt = bootstrap::priority_levels().remove(1);
        exempt["spec"]["exempt"]["nominalConcurrencyShares"] = json!(6);
        checking::create(&PriorityLevel, exempt, &[]);
    }
}
