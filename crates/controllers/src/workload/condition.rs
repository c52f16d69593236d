//! Status conditions. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
pub(crate) use setpoint::conditions::whole_seconds;

/// A condition in the format of Deployments, ReplicaSets and similar kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) r#type: String,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// When the condition was last confirmed. Used by some kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_update_time: Option<Timestamp>,
    /// When the condition was last probed. Used by other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_probe_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_transition_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

impl Condition {
    /// Creates a condition with a transition at `now`.
    pub(crate) fn new(
        r#type: &str,
        status: &str,
        reason: &str,
        message: impl Into<String>,
        now: Timestamp,
    ) -> Self {
        Self {
            r#type: r#type.into(),
            status: status.into(),
            last_update_time: None,
            last_probe_time: None,
            last_transition_time: Some(whole_seconds(now)),
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Sets the last update time.
    pub(crate) fn updated(self, now: Timestamp) -> Self {
        Self { last_update_time: Some(whole_seconds(now)), ..self }
    }

    /// Sets the last probe time.
    pub(crate) fn probed(self, now: Timestamp) -> Self {
        Self { last_probe_time: Some(whole_seconds(now)), ..self }
    }

    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

pub(crate) fn find<'a>(conditions: &'a [Condition], r#type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.r#type == r#type)
}

/// Adds or replaces a condition, at the end of the list. One with the same status and reason is left alone; one with
/// the same status keeps its transition time.
pub(crate) fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    if let Some(current) = find(conditions, &new.r#type) {
        if current.status == new.status && current.reason == new.reason {
            return;
        }
        if current.status == new.status {
            new.last_transition_time = current.last_transition_time;
        }
    }
    remove(conditions, &new.r#type);
    conditions.push(new);
}

pub(crate) fn remove(conditions: &mut Vec<Condition>, r#type: &str) {
    conditions.retain(|condition| condition.r#type != r#type);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn condition(status: &str, reason: &str, message: &str, second: i64) -> Condition {
        Condition::new("Ready", status, reason, message, at(second)).updated(at(second))
    }

    #[test]
    fn setting_keeps_what_did_not_change() {
        let mut conditions =
            vec![condition("True", "A", "first", 1), Condition::new("Other", "True", "", "", at(1))];

        set(&mut conditions, condition("True", "A", "second", 2));
        assert_eq!(
            find(&conditions, "Ready"),
            Some(&condition("True", "A", "first", 1)),
            "same status and reason"
        );

        set(&mut conditions, condition("True", "B", "third", 3));
        let expected = Condition { last_transition_time: Some(at(1)), ..condition("True", "B", "third", 3) };
        assert_eq!(conditions.last(), Some(&expected), "same status: no transition");

        set(&mut conditions, condition("False", "B", "fourth", 4));
        assert_eq!(conditions.last(), Some(&condition("False", "B", "fourth", 4)));
        assert_eq!(conditions.len(), 2);

        remove(&mut conditions, "Ready");
        assert_eq!((find(&conditions, "Ready"), conditions.len()), (None, 1));
    }

    #[test]
    fn times_are_written_in_whole_seconds() {
        let now = Timestamp::new(7, 900_000_000).unwrap();
        let encoded = serde_json::to_string(&Condition::new("Ready", "True", "", "", now)).unwrap();
        assert_eq!(
            encoded,
            r#"{"type":"Ready","status":"True","lastTransitionTime":"1970-01-01T00:00:07Z"}"#
        );
    }
}
