//! The next step of a migration, and its conditions. Pure.

use jiff::Timestamp;

use super::{Condition, Status};

/// The next step of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It has finished.
    Nothing,
    /// Record the resource version of the resource: newer objects already have the new storage version.
    RecordVersion,
    Migrate,
}

/// The progress of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Running,
    Succeeded,
    Failed(&'static str),
}

impl Status {
    pub(super) fn next(&self) -> Step {
        if self.is("Succeeded") || self.is("Failed") {
            return Step::Nothing;
        }
        if self.resource_version.is_empty() { Step::RecordVersion } else { Step::Migrate }
    }

    fn is(&self, r#type: &str) -> bool {
        self.conditions.iter().any(|condition| condition.r#type == r#type && condition.status == "True")
    }

    /// Returns the status with this condition. A finished migration is no longer running.
    pub(super) fn with_progress(&self, progress: Progress, now: Timestamp) -> Self {
        let mut status = self.clone();
        let (r#type, reason, message) = match progress {
            Progress::Running => ("Running", "StorageVersionMigrationInProgress", ""),
            Progress::Succeeded => ("Succeeded", "StorageVersionMigrationSucceeded", ""),
            Progress::Failed(why) => ("Failed", "StorageVersionMigrationFailed", why),
        };
        if status.is(r#type) {
            return status;
        }
        if progress != Progress::Running {
            let running = |condition: &&mut Condition| condition.r#type == "Running";
            status.conditions.iter_mut().filter(running).for_each(|one| one.status = "False".to_owned());
        }
        status.conditions.retain(|condition| condition.r#type != r#type);
        status.conditions.push(Condition {
            r#type: r#type.to_owned(),
            status: "True".to_owned(),
            last_update_time: Some(now),
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::at;

    #[test]
    fn a_migration_records_its_resource_version_runs_and_finishes() {
        let new = Status::default();
        assert_eq!(new.next(), Step::RecordVersion);
        let placed = Status { resource_version: "7".to_owned(), ..new };
        assert_eq!(placed.next(), Step::Migrate);
        let running = placed.with_progress(Progress::Running, at(1));
        assert_eq!(
            (running.next(), running.with_progress(Progress::Running, at(2)) == running),
            (Step::Migrate, true)
        );
        for progress in [Progress::Succeeded, Progress::Failed("why")] {
            let ended = running.with_progress(progress, at(3));
            assert_eq!(ended.next(), Step::Nothing);
            assert!(!ended.is("Running"));
        }
    }
}
