//! Removes servers from a StorageVersion. Pure.

use jiff::Timestamp;

use super::{Condition, Status};

/// The plan for a StorageVersion.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keep,
    Delete,
    Write(Status),
}

const EQUAL: &str = "AllEncodingVersionsEqual";

/// Plans for a StorageVersion. `gone` tells which servers have no lease.
pub(super) fn plan(status: &Status, gone: impl Fn(&str) -> bool, now: Timestamp) -> Plan {
    let mut left = status.clone();
    left.storage_versions.retain(|server| !gone(&server.api_server_id));
    if left.storage_versions.len() == status.storage_versions.len() {
        return Plan::Keep;
    }
    if left.storage_versions.is_empty() {
        return Plan::Delete;
    }
    agree(&mut left, now);
    Plan::Write(left)
}

/// Sets the common encoding version, if all servers agree.
fn agree(status: &mut Status, now: Timestamp) {
    let first = status.storage_versions.first().map(|server| server.encoding_version.clone());
    let common =
        first.filter(|first| status.storage_versions.iter().all(|server| server.encoding_version == *first));
    let (value, reason, message) = match &common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let another = common.is_some()
        && status.common_encoding_version.is_some()
        && common != status.common_encoding_version;
    status.common_encoding_version = common;
    let known = status.conditions.iter_mut().find(|condition| condition.r#type == EQUAL);
    match known {
        Some(known) => {
            if known.status != value || another {
                known.last_transition_time = Some(now);
            }
            known.status = value.to_owned();
            (known.reason, known.message) = (reason.to_owned(), message.to_owned());
        }
        None => status.conditions.push(Condition {
            r#type: EQUAL.to_owned(),
            status: value.to_owned(),
            last_transition_time: Some(now),
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Condition::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ServerVersion;
    use super::*;
    use crate::workload::fixtures::at;

    fn servers(list: &[(&str, &str)]) -> Status {
        let server = |(id, version): &(&str, &str)| ServerVersion {
            api_server_id: (*id).to_owned(),
            encoding_version: (*version).to_owned(),
            ..ServerVersion::default()
        };
        Status { storage_versions: list.iter().map(server).collect(), ..Status::default() }
    }

    #[test]
    fn deleted_servers_are_removed_and_the_common_version_is_updated() {
        let gone = |id: &str| id.starts_with("gone");
        assert_eq!(plan(&servers(&[("a", "v1")]), gone, at(1)), Plan::Keep);
        assert_eq!(plan(&servers(&[("gone", "v1")]), gone, at(1)), Plan::Delete);
        let check = |list: &[(&str, &str)], common: Option<&str>, reason: &str| {
            let Plan::Write(status) = plan(&servers(list), gone, at(1)) else {
                panic!("something is written")
            };
            assert_eq!(status.common_encoding_version.as_deref(), common);
            assert_eq!(status.conditions[0].reason, reason);
        };
        check(&[("gone", "v1"), ("a", "v2")], Some("v2"), "CommonEncodingVersionSet");
        check(&[("gone", "v1"), ("a", "v2"), ("b", "v3")], None, "CommonEncodingVersionUnset");
    }
}
