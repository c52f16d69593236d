//! The status of an object with a role or playbook, in the form of the Operator SDK.                          (pure)

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::runner::PlayResult;

/// The longest message of a condition.
const MAX_MESSAGE: usize = 8 << 10;

/// What became of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum News<'a> {
    Running,
    Done(&'a PlayResult),
    /// There was no run.
    Error(&'a str),
}

/// Returns the new status.
pub(super) fn status(before: &Value, news: News<'_>, now: Timestamp) -> Map<String, Value> {
    let mut status = before.as_object().cloned().unwrap_or_default();
    let known = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut conditions = Conditions { all: known, now };
    match news {
        News::Running => {
            conditions.end("Successful");
            conditions.set("Running", true, "Running", "Running reconciliation", None);
        }
        News::Done(result) if result.messages.is_empty() => {
            conditions.set("Running", true, "Successful", "Awaiting next reconciliation", Some(result));
            conditions.set("Successful", true, "Successful", "Last reconciliation succeeded", None);
            conditions.set("Failure", false, "", "", None);
        }
        News::Done(result) => {
            conditions.end("Running");
            conditions.set("Failure", true, "Failed", &result.messages.join("\n"), Some(result));
            conditions.set("Successful", false, "", "", None);
        }
        News::Error(why) => {
            conditions.end("Running");
            conditions.end("Successful");
            conditions.set("Failure", true, "Failed", why, None);
        }
    }
    status.insert("conditions".into(), conditions.all.into());
    status
}

struct Conditions {
    all: Vec<Value>,
    now: Timestamp,
}

impl Conditions {
    fn set(&mut self, kind: &str, holds: bool, reason: &str, message: &str, result: Option<&PlayResult>) {
        let message: String = message.chars().take(MAX_MESSAGE).collect();
        let status = if holds { "True" } else { "False" };
        let before = self.all.iter().position(|condition| condition["type"] == kind);
        let before = before.map(|at| self.all.remove(at));
        let since = before
            .filter(|before| before["status"] == status)
            .map(|mut before| before["lastTransitionTime"].take());
        let now = || setpoint::conditions::whole_seconds(self.now).to_string().into();
        let mut condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.filter(Value::is_string).unwrap_or_else(now),
        });
        if let Some(PlayResult { ok, changed, skipped, failures, .. }) = result {
            // In the form of the Operator SDK, which is that of Python.
            let completion = self.now.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string();
            condition["ansibleResult"] = json!({
                "ok": ok, "changed": changed, "skipped": skipped, "failures": failures, "completion": completion,
            });
        }
        self.all.push(condition);
    }

    /// Makes a condition false, if there is one.
    fn end(&mut self, kind: &str) {
        let Some(before) = self.all.iter().find(|condition| condition["type"] == kind).cloned() else {
            return;
        };
        let text = |field: &str| before[field].as_str().unwrap_or_default().to_owned();
        self.set(kind, false, &text("reason"), &text("message"), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &Value, news: News<'_>) -> (Vec<String>, Value) {
        let status: Value = status(before, news, "2025-01-01T00:00:00Z".parse().expect("a time")).into();
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let conditions = status["conditions"].as_array().expect("a list").iter();
        let mut shown: Vec<String> = conditions
            .map(|one| format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason")))
            .collect();
        shown.sort();
        (shown, status)
    }

    #[test]
    fn the_conditions_are_those_of_the_operator_sdk() {
        let (conditions, running) = after(&json!({"kept": 1}), News::Running);
        assert_eq!((conditions, &running["kept"]), (vec!["Running=True/Running".to_owned()], &json!(1)));
        let good = PlayResult { ok: 3, changed: 1, ..PlayResult::default() };
        let (conditions, done) = after(&running, News::Done(&good));
        assert_eq!(conditions, ["Failure=False/", "Running=True/Successful", "Successful=True/Successful"]);
        let result =
            done["conditions"].as_array().expect("a list").iter().find(|one| one["type"] == "Running");
        let result = &result.expect("a condition")["ansibleResult"];
        assert_eq!((&result["ok"], &result["completion"]), (&json!(3), &json!("2025-01-01T00:00:00+00:00")));
        let (conditions, again) = after(&done, News::Running);
        assert_eq!(conditions, ["Failure=False/", "Running=True/Running", "Successful=False/Successful"]);
        let bad = PlayResult { messages: vec!["no".into()], ..PlayResult::default() };
        let (conditions, failed) = after(&again, News::Done(&bad));
        assert_eq!(conditions, ["Failure=True/Failed", "Running=False/Running", "Successful=False/"]);
        let (conditions, _) = after(&failed, News::Error("none"));
        assert_eq!(conditions, ["Failure=True/Failed", "Running=False/Running", "Successful=False/"]);
    }
}
