//! The audit event: `audit.k8s.io/v1 Event`, with its fields in the order of v1.34.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::policy::{Level, Stage};
use crate::auth::User;
use crate::codec::to_bytes;
use crate::status::{Details, Status};

pub(super) const API_VERSION: &str = "audit.k8s.io/v1";

/// The prefix of every encoded event. Items of an `EventList` omit it.
pub(super) const HEAD: &[u8] = br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#;

/// The audit event of a request, as far as known.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    pub(super) user: UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<UserInfo>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Box<RawValue>>,
    #[serde(serialize_with = "micro_time")]
    pub(super) request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro_time")]
    pub(super) stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// `authentication.k8s.io/v1 UserInfo`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct UserInfo {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl From<&User> for UserInfo {
    fn from(user: &User) -> Self {
        Self {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

/// The object of a request.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

/// The `Status` of a response. For a response that is not a `Status`, only the code is set.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ResponseStatus {
    pub(super) metadata: Metadata,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Details>,
    pub(super) code: u16,
}

/// The metadata of a `Status`, always present and empty.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Metadata {}

impl From<&Status> for ResponseStatus {
    fn from(status: &Status) -> Self {
        Self {
            metadata: Metadata {},
            status: status.status.to_string(),
            message: status.message.clone(),
            reason: status.reason.to_string(),
            details: status.details.clone(),
            code: status.code,
        }
    }
}

impl Event {
    pub(super) fn new(audit_id: String, received: Timestamp) -> Self {
        Self {
            kind: "Event",
            api_version: API_VERSION,
            level: Level::None,
            audit_id,
            stage: Stage::ResponseStarted,
            request_uri: String::new(),
            verb: String::new(),
            user: UserInfo::default(),
            impersonated_user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: received,
            stage_timestamp: received,
            annotations: BTreeMap::new(),
        }
    }

    /// Encodes the event as one line of JSON, without a line break.
    pub(super) fn json(&self) -> Bytes {
        to_bytes(self)
    }

    /// Keeps the first value of an annotation, as in v1.34.
    pub(super) fn annotate(&mut self, key: &str, value: String) {
        if self.annotations.get(key).is_some_and(|known| *known != value) {
            tracing::warn!(key, value, audit_id = self.audit_id, "an audit annotation is already set");
            return;
        }
        self.annotations.insert(key.to_owned(), value);
    }
}

/// Serializes a time to the microsecond, always with six digits.
fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_the_order_of_v1_34() {
        let received: Timestamp = "2025-01-02T03:04:05Z".parse().unwrap();
        let mut event = Event::new("id".into(), received);
        event.level = Level::RequestResponse;
        event.stage = Stage::ResponseComplete;
        event.request_uri = "/api/v1/namespaces/a/pods".into();
        event.verb = "create".into();
        event.user = UserInfo::from(&User::system("admin"));
        event.source_ips = vec!["127.0.0.1".into()];
        event.user_agent = "test".into();
        event.object_ref = Some(ObjectReference {
            resource: "pods".into(),
            namespace: "a".into(),
            api_version: "v1".into(),
            ..ObjectReference::default()
        });
        event.response_status = Some(ResponseStatus { code: 201, ..ResponseStatus::default() });
        event.request_object = RawValue::from_string(r#"{"a":1}"#.into()).ok();
        event.annotate("k", "v".into());
        event.annotate("k", "other".into());
        let text = String::from_utf8(event.json().to_vec()).unwrap();
        assert!(text.as_bytes().starts_with(HEAD));
        let expected = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id","#,
            r#""stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/pods","verb":"create","#,
            r#""user":{"username":"admin","groups":["system:masters","system:authenticated"]},"#,
            r#""sourceIPs":["127.0.0.1"],"userAgent":"test","#,
            r#""objectRef":{"resource":"pods","namespace":"a","apiVersion":"v1"},"#,
            r#""responseStatus":{"metadata":{},"code":201},"requestObject":{"a":1},"#,
            r#""requestReceivedTimestamp":"2025-01-02T03:04:05.000000Z","#,
            r#""stageTimestamp":"2025-01-02T03:04:05.000000Z","annotations":{"k":"v"}}"#,
        );
        assert_eq!(text, expected);
    }
}
