//! Recorded hooks: calls of a real hook, replayed in a test without it.
//!
//! Requests are matched by content: uids, resource versions and times are masked, because they differ in each run.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::transport::{HookReply, HookRequest, HookTarget, Transport, Transports};

/// The maximum number of calls in a recording. Later calls are made but not recorded.
const MAX_CALLS: usize = 10_000;

/// The fields that differ in each run.
const MASKED: [&str; 7] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "controller-uid",
    "lastTransitionTime",
];

/// A recorded call: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Exchange {
    url: String,
    request: Value,
    status: u16,
    answer: Value,
}

/// Makes calls and records them. Cheap to clone.
#[derive(Clone)]
pub struct Recording {
    inner: Arc<dyn Transports>,
    calls: Arc<Mutex<Vec<Exchange>>>,
}

impl Recording {
    /// Records the calls that `inner` makes.
    pub fn of(inner: impl Transports) -> Self {
        Self { inner: Arc::new(inner), calls: Arc::default() }
    }

    /// Returns the calls so far, one per line, for [`Recorded::parse`].
    pub fn text(&self) -> String {
        self.calls.lock().iter().map(|call| json!(call).to_string() + "\n").collect()
    }
}

impl Transports for Recording {
    fn open(&self, target: &HookTarget) -> Result<Arc<dyn Transport>, String> {
        let (inner, calls) = (self.inner.open(target)?, self.calls.clone());
        Ok(Arc::new(Recorder { url: target.url.clone(), inner, calls }))
    }
}

struct Recorder {
    url: String,
    inner: Arc<dyn Transport>,
    calls: Arc<Mutex<Vec<Exchange>>>,
}

impl Transport for Recorder {
    fn send(&self, request: HookRequest) -> BoxFuture<'static, Result<HookReply, String>> {
        let (url, calls) = (self.url.clone(), self.calls.clone());
        let body = serde_json::from_slice(&request.body).unwrap_or_default();
        let sending = self.inner.send(request);
        Box::pin(async move {
            let reply = sending.await?;
            let answer = serde_json::from_slice(&reply.body).unwrap_or_default();
            let mut calls = calls.lock();
            if calls.len() < MAX_CALLS {
                calls.push(Exchange { url, request: body, status: reply.status, answer });
            }
            Ok(reply)
        })
    }
}

/// Replays the responses of a recorded hook. A request that was not recorded is an error.
#[derive(Clone)]
pub struct Recorded(Arc<BTreeMap<(String, String), (u16, String)>>);

impl Recorded {
    /// Parses the output of [`Recording::text`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut calls = BTreeMap::new();
        for (nth, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let call: Exchange =
                serde_json::from_str(line).map_err(|error| format!("line {}: {error}", nth + 1))?;
            calls.insert(
                (call.url, masked(&call.request).to_string()),
                (call.status, call.answer.to_string()),
            );
        }
        Ok(Self(Arc::new(calls)))
    }
}

impl Transports for Recorded {
    fn open(&self, target: &HookTarget) -> Result<Arc<dyn Transport>, String> {
        Ok(Arc::new(Replay { url: target.url.clone(), calls: self.clone() }))
    }
}

struct Replay {
    url: String,
    calls: Recorded,
}

impl Transport for Replay {
    fn send(&self, request: HookRequest) -> BoxFuture<'static, Result<HookReply, String>> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let call = (self.url.clone(), masked(&body).to_string());
        let known = self.calls.0.get(&call).cloned();
        Box::pin(std::future::ready(match known {
            Some((status, answer)) => Ok(HookReply { status, ..HookReply::ok(answer) }),
            None => Err(format!("this call was not recorded: {}", call.1)),
        }))
    }
}

fn masked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !MASKED.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name.clone(), masked(value))).collect())
        }
        Value::Array(items) => items.iter().map(masked).collect(),
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Functions;

    fn request(name: &str, uid: &str) -> HookRequest {
        let body = json!({"parent": {"metadata": {"name": name, "uid": uid}}}).to_string();
        HookRequest { hook: "sync", body: body.into(), etag: None }
    }

    #[tokio::test]
    async fn a_recording_answers_like_the_hook() {
        let hook = Functions::new()
            .on("http://h/sync", |request| json!({"status": request["parent"]["metadata"]["name"]}));
        let recording = Recording::of(hook);
        let target = HookTarget { url: "http://h/sync".into(), ..HookTarget::default() };
        recording.open(&target).expect("a hook").send(request("a", "1")).await.expect("an answer");
        let replay = Recorded::parse(&recording.text()).expect("a recording").open(&target).expect("a hook");
        let reply = replay.send(request("a", "2")).await.expect("recorded");
        assert_eq!((reply.status, &reply.body[..]), (200, &br#"{"status":"a"}"#[..]));
        assert!(replay.send(request("b", "1")).await.is_err());
    }
}
