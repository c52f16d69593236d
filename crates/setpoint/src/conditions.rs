//! Status conditions.
//!
//! Invariant: `lastTransitionTime` changes only when the status changes. Setting a condition to its current value
//! changes nothing, so that a steady state makes no writes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Creates a condition. [`set`] decides its `lastTransitionTime`.
///
/// ```
/// use setpoint::conditions;
/// let ready = conditions::new("Ready", true, "AllUp", "3 of 3 replicas are up");
/// assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "True"));
/// ```
pub fn new(
    kind: &str,
    holds: impl Into<Option<bool>>,
    reason: &str,
    message: impl Into<String>,
) -> Condition {
    let status = match holds.into() {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    Condition {
        type_: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

/// Adds a condition, or replaces the one of the same type. Returns whether anything changed.
///
/// ```
/// use setpoint::conditions;
/// let now = "2025-01-01T00:00:00Z".parse().unwrap();
/// let mut status = Vec::new();
/// assert!(conditions::set(&mut status, conditions::new("Ready", false, "Starting", ""), now));
/// assert!(!conditions::set(&mut status, conditions::new("Ready", false, "Starting", ""), now));
/// assert!(!conditions::is_true(&status, "Ready"));
/// ```
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition, now: Timestamp) -> bool {
    let Some(known) = conditions.iter_mut().find(|known| known.type_ == new.type_) else {
        new.last_transition_time = Time(now);
        conditions.push(new);
        return true;
    };
    let since = if known.status == new.status { known.last_transition_time.0 } else { now };
    new.last_transition_time = Time(since);
    let changed = *known != new;
    *known = new;
    changed
}

/// Removes a condition. Returns whether it existed.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

/// Returns the condition of a type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Returns whether a condition exists and its status is `True`.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Truncates a time to whole seconds, as conditions and most other API fields have it.
///
/// ```
/// let time = "2025-01-01T00:00:00.7Z".parse().unwrap();
/// assert_eq!(setpoint::conditions::whole_seconds(time).to_string(), "2025-01-01T00:00:00Z");
/// ```
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change_of_status() {
        let mut status = Vec::new();
        assert!(set(&mut status, new("Ready", false, "Starting", "0 of 3"), at(1)));
        assert!(set(&mut status, new("Ready", false, "Starting", "1 of 3"), at(2)), "another message");
        assert_eq!(find(&status, "Ready").expect("set").last_transition_time.0, at(1));
        assert!(set(&mut status, new("Ready", true, "AllUp", "3 of 3"), at(3)));
        assert!(!set(&mut status, new("Ready", true, "AllUp", "3 of 3"), at(4)), "the same again");
        assert_eq!(find(&status, "Ready").expect("set").last_transition_time.0, at(3));
        assert!(is_true(&status, "Ready"));
        assert!(set(&mut status, new("Ready", None, "Lost", ""), at(5)) && !is_true(&status, "Ready"));
    }

    #[test]
    fn other_conditions_stay() {
        let mut status = vec![new("Theirs", true, "Whatever", "")];
        set(&mut status, new("Ours", true, "Done", ""), at(1));
        assert!(remove(&mut status, "Ours") && !remove(&mut status, "Ours"));
        assert_eq!(status.len(), 1);
    }
}
