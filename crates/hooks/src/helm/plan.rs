//! What to do about a release.                                                                                (pure)
//!
//! ```text
//!  no revision ─► install ─► deployed ─► check for drift
//!                   │           │ other chart or values
//!                   │           ▼
//!                   │        upgrade ─► deployed
//!                   │           └─► failed ─► roll back, rest, upgrade
//!                   └─► failed ─► wait, uninstall, install      (only if no revision was ever deployed)
//!  pending, and nobody works on it any more ─► marked as failed ─► upgrade
//! ```
//!
//! Everything is decided by the revisions that Helm keeps in the cluster, so it does not matter where the last run of
//! `helm` was interrupted.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::{Key, Object};

use crate::names::{RELEASE_FAILED, RELEASE_INPUTS, RELEASE_INTERRUPTED, RELEASE_OF};
use crate::parents::annotations;

/// How long an operation of someone else on the release may take: twice Helm's own default.
const OTHERS_TAKE: Duration = Duration::from_secs(600);

/// The status of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Deployed,
    Superseded,
    Failed,
    Uninstalling,
    Uninstalled,
    /// An operation is under way, or was interrupted.
    Pending,
    Unknown,
}

/// The uid and version of an object.
pub(super) type Stamp = (Box<str>, Box<str>);

/// A revision of a release, as the metadata of its Secret shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Revision {
    pub(super) secret: Key,
    /// Those of the Secret.
    pub(super) stamp: Stamp,
    pub(super) version: u64,
    pub(super) status: Status,
    /// The uid of the object that it was created for, if this operator has created it.
    pub(super) of: Option<String>,
    pub(super) inputs: Option<String>,
    pub(super) failed: Option<String>,
    pub(super) interrupted: bool,
    pub(super) changed: Option<Timestamp>,
}

impl Revision {
    /// Reads a Secret. `None` if it is no revision.
    pub(super) fn of(secret: &Object) -> Option<Self> {
        let meta = secret.meta();
        let version = meta.label("version")?.parse().ok()?;
        let status = match meta.label("status")? {
            "deployed" => Status::Deployed,
            "superseded" => Status::Superseded,
            "failed" => Status::Failed,
            "uninstalling" => Status::Uninstalling,
            "uninstalled" => Status::Uninstalled,
            status if status.starts_with("pending") => Status::Pending,
            _ => Status::Unknown,
        };
        let seconds =
            meta.label("modifiedAt").or(meta.label("createdAt")).and_then(|seconds| seconds.parse().ok());
        let annotations = annotations(secret);
        let text = |name: &str| annotations.get(name).map(str::to_owned);
        Some(Self {
            secret: secret.key().clone(),
            stamp: (meta.uid.clone(), meta.resource_version.clone()),
            version,
            status,
            of: text(RELEASE_OF),
            inputs: text(RELEASE_INPUTS),
            failed: text(RELEASE_FAILED),
            interrupted: annotations.get(RELEASE_INTERRUPTED).is_some(),
            changed: seconds
                .and_then(|seconds| Timestamp::from_second(seconds).ok())
                .or(meta.creation_timestamp),
        })
    }

    /// How long someone else may still work on it.
    fn busy(&self, now: Timestamp) -> Option<Duration> {
        let since = self.changed.filter(|_| self.of.is_none())?;
        let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        OTHERS_TAKE.checked_sub(passed).filter(|left| !left.is_zero())
    }
}

/// What is wanted of a release, and what is known of earlier attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// The digest of chart and values.
    pub(super) inputs: &'a str,
    /// How long to wait after failures with them.
    pub(super) rest: Option<Duration>,
    pub(super) now: Timestamp,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Someone else works on the release.
    Wait(Duration),
    /// Mark this revision as failed: nobody works on it any more.
    MarkFailed(u64),
    Install,
    Upgrade,
    Rollback {
        to: u64,
    },
    /// Uninstall what is left, and install again.
    Clean,
    /// This revision is what is wanted: check for drift.
    Check(u64),
    /// What is wanted has failed. Until it is tried again, this revision counts.
    Rest {
        version: Option<u64>,
        left: Duration,
    },
}

/// Plans the next step. The revisions are in order.
pub(super) fn plan(revisions: &[Revision], wanted: Wanted<'_>) -> Step {
    let Wanted { inputs, rest, now } = wanted;
    let Some(last) = revisions.last() else { return unless_resting(None, rest, Step::Install) };
    let newest = |status| revisions.iter().rfind(|revision| revision.status == status);
    // An interrupted operation may have superseded the deployed revision already.
    let deployed = newest(Status::Deployed).or_else(|| newest(Status::Superseded)).map(|one| one.version);
    let is_wanted = last.inputs.as_deref() == Some(inputs);
    match last.status {
        Status::Pending | Status::Uninstalling => match last.busy(now) {
            Some(left) => Step::Wait(left),
            None if last.status == Status::Uninstalling => Step::Clean,
            None => Step::MarkFailed(last.version),
        },
        Status::Deployed if is_wanted => Step::Check(last.version),
        Status::Deployed => unless_resting(deployed, rest, Step::Upgrade),
        Status::Uninstalled => unless_resting(None, rest, Step::Clean),
        Status::Superseded => unless_resting(deployed, rest, Step::Upgrade),
        _ if last.interrupted => unless_resting(deployed, rest, Step::Upgrade),
        _ => match deployed {
            None => unless_resting(None, rest, Step::Clean),
            Some(to) if is_wanted && last.failed.is_none() => Step::Rollback { to },
            Some(_) => unless_resting(deployed, rest, Step::Upgrade),
        },
    }
}

fn unless_resting(version: Option<u64>, rest: Option<Duration>, step: Step) -> Step {
    match rest {
        Some(left) => Step::Rest { version, left },
        None => step,
    }
}

/// The next step towards removing a release.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Removal {
    Done,
    /// Someone else works on the release.
    Wait(Duration),
    Uninstall {
        keeps_history: bool,
    },
    /// Wait until the objects of this revision are gone, then remove the revisions.
    Gone(u64),
}

/// Plans the next step of a removal. `waits`: until all objects are gone.
pub(super) fn plan_removal(revisions: &[Revision], waits: bool, now: Timestamp) -> Removal {
    let Some(last) = revisions.last() else { return Removal::Done };
    match last.status {
        Status::Uninstalled if waits => Removal::Gone(last.version),
        Status::Uninstalled => Removal::Uninstall { keeps_history: false },
        Status::Pending | Status::Uninstalling => match last.busy(now) {
            Some(left) => Removal::Wait(left),
            None => Removal::Uninstall { keeps_history: waits },
        },
        _ => Removal::Uninstall { keeps_history: waits },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2025-01-01T00:10:00Z";

    fn now() -> Timestamp {
        NOW.parse().expect("a time")
    }

    /// `2 failed new` is revision 2, failed, with the new inputs; `of-other` was created by someone else.
    fn revision(text: &str) -> Revision {
        let words: Vec<&str> = text.split(' ').collect();
        let status = match words[1] {
            "deployed" => Status::Deployed,
            "superseded" => Status::Superseded,
            "failed" => Status::Failed,
            "uninstalling" => Status::Uninstalling,
            "uninstalled" => Status::Uninstalled,
            "pending" => Status::Pending,
            other => panic!("{other}"),
        };
        let has = |word: &str| words.contains(&word);
        Revision {
            secret: Key::namespaced("default", words[0]),
            stamp: ("u".into(), "1".into()),
            version: words[0].parse().expect("a number"),
            status,
            of: (!has("of-other")).then(|| "u1".into()),
            inputs: words.get(2).map(|inputs| (*inputs).to_owned()),
            failed: has("after-new").then(|| "new".into()),
            interrupted: has("interrupted"),
            changed: Some("2025-01-01T00:05:00Z".parse().expect("a time")),
        }
    }

    const REST: Duration = Duration::from_secs(20);

    #[test]
    fn the_revisions_decide_what_is_done() {
        let check = |revisions: &[&str], tried: bool, expected: Step| {
            let revisions: Vec<_> = revisions.iter().map(|text| revision(text)).collect();
            let wanted = Wanted { inputs: "new", rest: tried.then_some(REST), now: now() };
            assert_eq!(plan(&revisions, wanted), expected, "{revisions:?}");
        };
        let rest = |version: Option<u64>| Step::Rest { version, left: REST };
        check(&[], false, Step::Install);
        check(&[], true, rest(None));
        check(&["1 deployed new"], false, Step::Check(1));
        check(&["1 deployed new"], true, Step::Check(1));
        check(&["1 deployed old"], false, Step::Upgrade);
        check(&["1 superseded new", "2 deployed old"], false, Step::Upgrade);
        check(&["1 deployed old"], true, rest(Some(1)));
        // Helm leaves the previous revision deployed when an upgrade fails.
        check(&["1 deployed old", "2 failed new"], false, Step::Rollback { to: 1 });
        check(&["1 deployed old", "2 failed new"], true, Step::Rollback { to: 1 });
        check(&["1 deployed old", "2 failed other"], false, Step::Upgrade);
        check(&["1 superseded old", "2 failed new", "3 deployed old after-new"], true, rest(Some(3)));
        check(&["1 superseded old", "2 failed new", "3 deployed old after-new"], false, Step::Upgrade);
        // The rollback failed too.
        check(&["1 deployed old", "2 superseded new", "3 failed old after-new"], true, rest(Some(1)));
        check(&["1 deployed old", "2 superseded new", "3 failed old after-new"], false, Step::Upgrade);
        // The rollback was interrupted when it had superseded what was deployed.
        check(
            &["1 superseded old", "2 failed new", "3 failed old after-new interrupted"],
            false,
            Step::Upgrade,
        );
        check(
            &["1 superseded old", "2 failed old interrupted", "3 failed new"],
            true,
            Step::Rollback { to: 1 },
        );
        check(&["1 superseded old", "2 failed new"], false, Step::Rollback { to: 1 });
        check(
            &["1 superseded old", "2 failed new", "3 failed old after-new interrupted"],
            true,
            rest(Some(1)),
        );
        check(&["1 superseded new"], false, Step::Upgrade);
        check(&["1 failed new"], true, rest(None));
        check(&["1 failed new"], false, Step::Clean);
        check(&["1 failed new interrupted"], false, Step::Upgrade);
        check(&["1 deployed old", "2 failed new interrupted"], false, Step::Upgrade);
        check(&["1 pending new"], false, Step::MarkFailed(1));
        check(&["1 deployed old", "2 pending of-other"], false, Step::Wait(Duration::from_secs(300)));
        check(&["1 uninstalling new"], false, Step::Clean);
        check(&["1 uninstalled new"], false, Step::Clean);
    }

    #[test]
    fn an_operation_of_someone_else_ends_some_time() {
        let revisions = [Revision {
            changed: Some("2024-12-31T00:00:00Z".parse().expect("a time")),
            ..revision("2 pending x of-other")
        }];
        let wanted = Wanted { inputs: "new", rest: None, now: now() };
        assert_eq!(plan(&revisions, wanted), Step::MarkFailed(2));
    }

    #[test]
    fn a_release_is_removed_step_by_step() {
        let check = |revisions: &[&str], waits: bool, expected: Removal| {
            let revisions: Vec<_> = revisions.iter().map(|text| revision(text)).collect();
            assert_eq!(plan_removal(&revisions, waits, now()), expected, "{revisions:?}");
        };
        check(&[], true, Removal::Done);
        check(&["1 deployed new"], false, Removal::Uninstall { keeps_history: false });
        check(&["1 deployed new"], true, Removal::Uninstall { keeps_history: true });
        check(&["1 pending new"], false, Removal::Uninstall { keeps_history: false });
        check(&["1 pending new of-other"], false, Removal::Wait(Duration::from_secs(300)));
        check(&["1 uninstalling new"], true, Removal::Uninstall { keeps_history: true });
        check(&["1 uninstalled new"], true, Removal::Gone(1));
        check(&["1 uninstalled new"], false, Removal::Uninstall { keeps_history: false });
    }
}
