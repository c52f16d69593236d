//! Conditions. Pure.

use jiff::Timestamp;

use super::view::HpaStatus;
use crate::workload::condition::{Condition, whole_seconds};

pub(super) const ABLE: &str = "AbleToScale";
pub(super) const ACTIVE: &str = "ScalingActive";
pub(super) const LIMITED: &str = "ScalingLimited";

impl HpaStatus {
    /// Sets a condition. `lastTransitionTime` only changes with its status.
    pub(super) fn set_condition(
        &mut self,
        r#type: &str,
        status: bool,
        reason: &str,
        message: impl Into<String>,
        now: Timestamp,
    ) {
        let status = if status { "True" } else { "False" };
        let at = self.conditions.iter().position(|condition| condition.r#type == r#type);
        let at = at.unwrap_or_else(|| {
            self.conditions.push(Condition { r#type: r#type.to_owned(), ..Condition::default() });
            self.conditions.len() - 1
        });
        let condition = &mut self.conditions[at];
        if condition.status != status {
            condition.last_transition_time = Some(whole_seconds(now));
        }
        condition.status = status.to_owned();
        condition.reason = reason.to_owned();
        condition.message = message.into();
    }
}
