//! Field conflicts between managers.

use std::fmt;

/// All conflicts of an apply, sorted by manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

/// A field owned by another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// `"m1"`, `"hpa" with subresource "scale" using apps/v1`.
    pub manager: String,
    /// `.spec.replicas`.
    pub field: String,
}

impl Conflict {
    /// Returns the message of its status cause.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [Conflict { manager, field }] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {field}");
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last = None;
        for Conflict { manager, field } in &self.0 {
            if last != Some(manager) {
                let separator = if last.is_some() { "\n" } else { "" };
                write!(f, "{separator}conflicts with {manager}:")?;
                last = Some(manager);
            }
            write!(f, "\n- {field}")?;
        }
        Ok(())
    }
}
