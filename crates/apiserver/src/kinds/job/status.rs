//! Validates updates of a job's status.
//!
//! A rule is checked only if the fields it covers have changed: other updates pass even if the stored status violates
//! the rule, as it can right after the spec has changed.

use serde_json::Value;

use super::indexes;
use crate::field::{Errors, Path, Reason};
use crate::json::Json;
use crate::validation::{IMMUTABLE, Seen, has_condition};

/// An update from one status to another.
struct Change<'a> {
    spec: &'a Value,
    new: &'a Value,
    old: &'a Value,
    path: Path<'a>,
}

pub(super) fn check(new: &Value, old: &Value, errors: &mut Errors) {
    let change = Change {
        spec: new.at("spec"),
        new: new.at("status"),
        old: old.at("status"),
        path: Path::root("status"),
    };
    let counts = ["active", "succeeded", "failed", "ready", "terminating"];
    crate::kinds::workload::check_counts(change.new, &counts, errors);
    change.check_uncounted(errors);
    change.check_conditions(errors);
    change.check_times(errors);
    change.check_ends(errors);
    change.check_active(errors);
    change.check_indexes(errors);
    change.check_pods(errors);
    change.check_success(errors);
    change.check_transition(errors);
}

impl Change<'_> {
    fn is(&self, condition: &str) -> bool {
        has_condition(self.new, condition)
    }

    fn was(&self, condition: &str) -> bool {
        has_condition(self.old, condition)
    }

    fn turned(&self, condition: &str) -> bool {
        self.is(condition) != self.was(condition)
    }

    fn changed(&self, field: &str) -> bool {
        self.new.at(field) != self.old.at(field)
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn finished_or(&self, field: &str) -> bool {
        let was_finished = self.was("Complete") || self.was("Failed");
        self.is_finished() != was_finished || self.changed(field)
    }

    fn refuse_conditions(&self, detail: impl Into<String>, errors: &mut Errors) {
        errors.push(Reason::Invalid, &self.path.child("conditions"), None, detail);
    }

    /// Checks that finished pods that are not counted yet are each listed once.
    fn check_uncounted(&self, errors: &mut Errors) {
        let path = self.path.child("uncountedTerminatedPods");
        let mut seen = Seen::new();
        for list in ["succeeded", "failed"] {
            let path = path.child(list);
            for (index, uid) in self.new.at("uncountedTerminatedPods").list(list).iter().enumerate() {
                match uid.as_str().unwrap_or_default() {
                    "" => errors.invalid(&path.index(index), "", "must not be empty"),
                    uid if seen.again(uid) => errors.duplicate(&path.index(index), uid),
                    _ => {}
                }
            }
        }
    }

    fn check_conditions(&self, errors: &mut Errors) {
        for (other, shown) in [("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")] {
            let turned = self.turned("Complete") || self.turned(other);
            if turned && self.is("Complete") && self.is(other) {
                self.refuse_conditions(format!("cannot set Complete=True and {shown} conditions"), errors);
            }
        }
    }

    fn check_times(&self, errors: &mut Errors) {
        let path = self.path.child("completionTime");
        let completed = self.new.at("completionTime");
        if self.turned("Complete") || self.changed("completionTime") {
            if !completed.is_null() && !self.is("Complete") {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                errors.invalid(&path, completed.clone(), detail);
            }
            if completed.is_null() && self.is("Complete") {
                errors.required(&path, "completionTime is required for Complete jobs");
            }
        }
        let started = self.new.text("startTime");
        let is_before =
            !started.is_empty() && !completed.is_null() && self.new.text("completionTime") < started;
        if (self.changed("startTime") || self.changed("completionTime")) && is_before {
            errors.invalid(&path, completed.clone(), "must be equal to or after `startTime`");
        }
    }

    /// Checks that a final condition comes with the condition that precedes it.
    fn check_ends(&self, errors: &mut Errors) {
        let turned = self.turned("Failed") || self.changed("failedIndexes");
        if turned && self.is("Failed") && !self.is("FailureTarget") {
            let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
            self.refuse_conditions(detail, errors);
        }
        let turned = self.turned("Complete") || self.turned("SuccessCriteriaMet");
        if turned && self.is("Complete") && !self.is("SuccessCriteriaMet") {
            let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            self.refuse_conditions(detail, errors);
        }
    }

    /// Checks that a finished job has no active pods.
    fn check_active(&self, errors: &mut Errors) {
        let active = self.new.count("active");
        if self.finished_or("active") && active > 0 && self.is_finished() {
            errors.invalid(&self.path.child("active"), active, "active>0 is invalid for finished job");
        }
        let never_ran = self.spec.flag("suspend") && self.spec.int("completions") == Some(0);
        let is_unstarted = !self.new.has("startTime") && self.is_finished();
        if self.finished_or("startTime") && !never_ran && is_unstarted {
            errors.required(&self.path.child("startTime"), "startTime is required for finished job");
        }
        let uncounted = self.new.at("uncountedTerminatedPods");
        let has_uncounted = ["failed", "succeeded"].iter().any(|list| !uncounted.list(list).is_empty());
        if self.finished_or("uncountedTerminatedPods") && self.is_finished() && has_uncounted {
            let path = self.path.child("uncountedTerminatedPods");
            errors.invalid(&path, uncounted.clone(), "must be empty for finished job");
        }
    }

    fn check_indexes(&self, errors: &mut Errors) {
        let (completed, failed) = (self.new.text("completedIndexes"), self.new.at("failedIndexes").as_str());
        let (completed_changed, failed_changed) =
            (self.changed("completedIndexes"), self.changed("failedIndexes"));
        let (completed_path, failed_path) =
            (self.path.child("completedIndexes"), self.path.child("failedIndexes"));
        let completions = self.spec.int("completions");
        let counts_by_index = self.spec.has("backoffLimitPerIndex");
        if let Some(completions) = completions.filter(|_| completed_changed)
            && let Err(why) = indexes::count(completed, completions)
        {
            errors.invalid(&completed_path, completed, format!("error parsing completedIndexes: {why}"));
        }
        if let (Some(completions), Some(failed)) = (completions, failed)
            && failed_changed
            && counts_by_index
            && let Err(why) = indexes::count(failed, completions)
        {
            errors.invalid(&failed_path, failed, format!("error parsing failedIndexes: {why}"));
        }
        if completed_changed && !completed.is_empty() && self.spec.text("completionMode") != "Indexed" {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.invalid(&completed_path, completed, detail);
        }
        let Some(failed) = failed else { return };
        if failed_changed && !counts_by_index {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.invalid(&failed_path, failed, detail);
        }
        if (completed_changed || failed_changed)
            && let Some(completions) = completions
            && let Some(shared) = indexes::first_shared(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {shared}");
            errors.invalid(&failed_path, failed, detail);
        }
    }

    fn check_pods(&self, errors: &mut Errors) {
        let terminating = self.new.count("terminating");
        if self.finished_or("terminating") && terminating > 0 && self.is_finished() {
            let detail = "terminating>0 is invalid for finished job";
            errors.invalid(&self.path.child("terminating"), terminating, detail);
        }
        let ready = self.new.count("ready");
        if (self.changed("ready") || self.changed("active")) && ready > self.new.count("active") {
            errors.invalid(&self.path.child("ready"), ready, "cannot set more ready pods than active");
        }
    }

    fn check_success(&self, errors: &mut Errors) {
        let is_met = self.is("SuccessCriteriaMet");
        for other in ["Failed", "FailureTarget"] {
            if is_met && self.is(other) {
                let detail = format!("cannot set SuccessCriteriaMet=True and {other}=true conditions");
                self.refuse_conditions(detail, errors);
            }
        }
        if self.spec.has("successPolicy") && !is_met && self.is("Complete") {
            let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
            self.refuse_conditions(detail, errors);
        }
    }

    /// Checks that a finished job stays finished, and that counters do not decrease.
    fn check_transition(&self, errors: &mut Errors) {
        for condition in ["Failed", "Complete", "FailureTarget"] {
            if self.was(condition) && !self.is(condition) {
                let detail = format!("cannot disable the terminal {condition}=True condition");
                self.refuse_conditions(detail, errors);
            }
        }
        let shrinks = self.spec.text("completionMode") == "Indexed"
            && self.spec.at("completions") == self.spec.at("parallelism");
        for (counter, is_fixed) in [("failed", true), ("succeeded", !shrinks)] {
            let count = self.new.count(counter);
            if is_fixed && count < self.old.count(counter) {
                let detail = format!("cannot decrease the {counter} counter");
                errors.invalid(&self.path.child(counter), count, detail);
            }
        }
        let completed = self.new.at("completionTime");
        if !completed.is_null() && self.old.has("completionTime") && self.changed("completionTime") {
            errors.invalid(&self.path.child("completionTime"), completed.clone(), IMMUTABLE);
        }
        let restarts = self.old.has("startTime") && self.changed("startTime");
        if restarts && !self.is_resuming() && !self.spec.flag("suspend") {
            let detail = "startTime cannot be removed for unsuspended job";
            errors.required(&self.path.child("startTime"), detail);
        }
        if self.was("SuccessCriteriaMet") && !self.is("SuccessCriteriaMet") {
            self.refuse_conditions("cannot disable the SuccessCriteriaMet=True condition", errors);
        }
        if self.was("Complete") && !self.was("SuccessCriteriaMet") && self.is("SuccessCriteriaMet") {
            let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            self.refuse_conditions(detail, errors);
        }
    }

    fn is_resuming(&self) -> bool {
        let mut conditions = self.new.list("conditions").iter();
        let is_suspended_no_more = conditions
            .any(|condition| condition.text("type") == "Suspended" && condition.text("status") == "False");
        self.was("Suspended") && is_suspended_no_more
    }
}
