//! `GET /containerLogs/NAMESPACE/POD/CONTAINER`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use tokio::sync::Mutex;

use super::Node;
use super::route::{Answered, Refusal, streamed};
use crate::images::{PULL_BACK_OFF, PULL_FAILED};
use crate::log::{LOOK_AFTER, LOOK_EVERY, LogQuery, QueryError, Selection};
use crate::runtime::{SandboxState, spans};
use crate::view::{ContainerStatus, PodView};

/// A log that is being read.
struct Reading {
    node: Node,
    namespace: String,
    pod: String,
    uid: String,
    container: String,
    /// The number of the run.
    run: u32,
    is_previous: bool,
    follows: bool,
    state: Arc<Mutex<SandboxState>>,
    selection: Selection,
    /// The number of the next line.
    next: u64,
    is_over: bool,
}

impl Node {
    pub(super) async fn container_log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        query: &str,
    ) -> Answered {
        let query = LogQuery::parse(form_urlencoded::parse(query.as_bytes())).map_err(rejected)?;
        let reading = self.open_log(namespace, pod, container, &query).await?;
        Ok(streamed(stream::unfold(reading, |mut reading| async move {
            let piece = reading.next_piece().await?;
            Some((piece, reading))
        })))
    }

    /// Returns what is in a log now.
    pub(super) async fn whole_log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        query: &LogQuery,
    ) -> Result<Vec<u8>, String> {
        let reading = self.open_log(namespace, pod, container, query).await;
        let mut reading = reading.map_err(Refusal::text)?;
        Ok(reading.read().await)
    }

    async fn open_log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        query: &LogQuery,
    ) -> Result<Reading, Refusal> {
        let missing = || Refusal::not_found(format!("pod {pod:?} does not exist"));
        let found = self.pod(namespace, pod).ok_or_else(missing)?;
        if !has_container(&found, container) {
            return Err(Refusal::not_found(format!("container {container:?} not found in pod {pod:?}")));
        }
        let status = found.status.all_containers().find(|status| status.name == container);
        let run = run_of(status, pod, container, query.previous).map_err(Refusal::bad_request)?;
        let entered = self.look(&found).await.map_err(|why| Refusal::internal(why.to_string()))?;
        Ok(Reading {
            node: self.clone(),
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: found.meta().uid.to_string(),
            container: container.to_owned(),
            run,
            is_previous: query.previous,
            follows: query.follow,
            state: entered.state,
            selection: query.selection(self.server.clock.now()),
            next: 0,
            is_over: false,
        })
    }
}

fn rejected(error: QueryError) -> Refusal {
    match error {
        QueryError::Undecodable => Refusal::bad_request(r#"{"message": "Unable to decode query."}"#),
        QueryError::Invalid => {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#)
        }
        QueryError::Stream(stream) => Refusal::bad_request(format!(
            "unable to return the given log stream: {stream:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
        )),
    }
}

fn has_container(pod: &PodView, name: &str) -> bool {
    let spec = &pod.spec;
    let mut all = spec.containers.iter().chain(&spec.init_containers).chain(&spec.ephemeral_containers);
    all.any(|container| container.name == name)
}

/// Returns the number of the run whose log is meant. An error is the kubelet's.
fn run_of(
    status: Option<&ContainerStatus>,
    pod: &str,
    container: &str,
    is_previous: bool,
) -> Result<u32, String> {
    let not_available = || format!("container {container:?} in pod {pod:?} is not available");
    let status = status.ok_or_else(not_available)?;
    let (current, previous) = spans(status);
    if is_previous {
        let none = || format!("previous terminated container {container:?} in pod {pod:?} not found");
        // A container that never ran was not terminated by its end.
        let has_run = status.last_state.terminated.as_ref().is_some_and(|last| last.started_at.is_some());
        return previous.filter(|_| has_run).map(|span| span.number).ok_or_else(none);
    }
    if let Some(span) = current {
        let never_ran = status.state.terminated.as_ref().is_some_and(|ended| ended.started_at.is_none());
        return match never_ran {
            true => Err(format!("container {container:?} in pod {pod:?} is terminated")),
            false => Ok(span.number),
        };
    }
    let reason = status.state.waiting.as_ref().map(|waiting| &*waiting.reason);
    let why = match reason {
        Some(PULL_FAILED) => "is waiting to start: image can't be pulled".to_owned(),
        Some(PULL_BACK_OFF) => "is waiting to start: trying and failing to pull image".to_owned(),
        Some(reason) => format!("is waiting to start: {reason}"),
        None => "is waiting to start - no logs yet".to_owned(),
    };
    Err(format!("container {container:?} in pod {pod:?} {why}"))
}

impl Reading {
    /// Returns the next piece of the log. `None` at its end.
    async fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over || self.selection.is_exhausted() {
                return None;
            }
            // Whether the run has ended is looked up before the log, so that its last lines are read.
            let has_ended = self.advance().await;
            let piece = self.read().await;
            self.is_over = has_ended || !self.follows;
            if !piece.is_empty() {
                return Some(piece.into());
            }
            if !self.is_over {
                self.wait().await;
            }
        }
    }

    /// Follows the run up to now. Returns true if it has ended.
    async fn advance(&mut self) -> bool {
        let Some(pod) = self.node.pod(&self.namespace, &self.pod) else { return true };
        if *pod.meta().uid != *self.uid {
            return true;
        }
        let status = pod.status.all_containers().find(|status| status.name == self.container);
        let (current, _) = status.map_or((None, None), spans);
        let runs = current.is_some_and(|span| span.number == self.run && span.until.is_none());
        let mut state = self.state.lock().await;
        state.sandbox.advance(pod.status.all_containers(), self.node.server.clock.now()).await;
        !runs || self.is_previous
    }

    /// Reads the lines that were added since.
    async fn read(&mut self) -> Vec<u8> {
        let state = self.state.lock().await;
        let Some(log) = state.sandbox.log(&self.container, self.is_previous) else { return Vec::new() };
        let (lines, next) = log.lines_from(self.next);
        self.next = next;
        self.selection.text(lines)
    }

    /// Waits until there may be more.
    async fn wait(&self) {
        let now = self.node.server.clock.now();
        let next = self.state.lock().await.sandbox.next_line(&self.container, now);
        let until = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
        let wait = until.map_or(LOOK_EVERY, |until| until.min(LOOK_EVERY));
        self.node.server.clock.sleep(wait.max(LOOK_AFTER)).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn logs_that_do_not_exist_are_refused_with_the_messages_of_the_kubelet() {
        let check = |status: Value, is_previous: bool, expected: Result<u32, &str>| {
            let status: Option<ContainerStatus> = serde_json::from_value(status.clone()).expect("a status");
            let found = run_of(status.as_ref(), "p", "c", is_previous);
            let expected = expected.map_err(|why| why.to_string());
            assert_eq!(found, expected, "{status:?}");
        };
        let waits = |reason: &str| json!({"name": "c", "state": {"waiting": {"reason": reason}}});
        let start = "container \"c\" in pod \"p\" is waiting to start";
        check(Value::Null, false, Err("container \"c\" in pod \"p\" is not available"));
        check(waits("ContainerCreating"), false, Err(&format!("{start}: ContainerCreating")));
        check(waits("ErrImagePull"), false, Err(&format!("{start}: image can't be pulled")));
        check(waits("ImagePullBackOff"), false, Err(&format!("{start}: trying and failing to pull image")));
        check(json!({"name": "c"}), false, Err(&format!("{start} - no logs yet")));
        let none = "previous terminated container \"c\" in pod \"p\" not found";
        let running = json!({"name": "c", "state": {"running": {"startedAt": "2025-01-01T00:00:00Z"}}});
        check(running.clone(), false, Ok(0));
        check(running, true, Err(none));
        let never_ran = json!({"name": "c", "state": {"terminated": {"finishedAt": "2025-01-01T00:00:00Z"}}});
        check(never_ran, false, Err("container \"c\" in pod \"p\" is terminated"));
        let ended = json!({"startedAt": "2025-01-01T00:00:00Z", "finishedAt": "2025-01-01T00:00:01Z"});
        let crashed = json!({"name": "c", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                             "lastState": {"terminated": ended}});
        check(crashed.clone(), false, Ok(2));
        check(crashed, true, Ok(2));
    }
}
