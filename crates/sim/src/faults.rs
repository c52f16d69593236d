//! Fault injection: what goes wrong, and when.
//!
//! Faults trigger on occurrences (the n-th write, the n-th event), not on timers, so the narrowest window is hit as
//! reliably as the widest.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::{Kind, Object};
use setpoint_cluster::Lost;
use tokio::sync::Notify;

use crate::trace::Trace;

/// A fault in an API call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCall {
    /// The request is lost: nothing is committed, and the client gets no response.
    DropBefore,
    /// The response is lost: the write is committed, but the client does not know.
    DropAfter,
    /// The API server rejects the request with this code.
    Fail(u16),
    /// The response is delayed.
    Delay(Duration),
    /// The manager crashes just before the write is committed.
    CrashBefore,
    /// The manager crashes just after the write is committed, before it gets the response.
    CrashAfter,
}

/// A fault in a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnEvent {
    /// From this event on, the watch is silent for half a minute, then ends with 410. What happened in the meantime is
    /// only visible as the difference between two lists.
    Hide,
    /// This event, and everything after it in the same watch, is delayed.
    Delay(Duration),
    /// The event arrives twice.
    Duplicate,
    /// The watch is closed before the event.
    Close,
    /// The watch ends with 410 before the event, and the informer lists again.
    Expire,
}

/// The servers that the API server calls: functions and local servers of the test, and simulated kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Callee {
    /// The admission webhooks of the test, and every request to its local servers.
    Webhook,
    /// Its conversion webhooks.
    Converter,
    /// Its extension API servers.
    ApiServer,
    /// The simulated nodes: logs, exec, attach, port-forward.
    Kubelet,
}

/// A fault in a call of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReply {
    /// The connection is closed without a response.
    Drop,
    /// The response has this HTTP code and no content.
    Fail(u16),
    /// The response is delayed.
    Delay(Duration),
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// In the n-th write (from 0) of the manager.
    Call { nth: usize, what: OnCall },
    /// In the n-th event (from 0) that its watches receive.
    Event { nth: usize, what: OnEvent },
    /// In every event.
    Events { what: OnEvent },
    /// Every watch is closed after this time.
    Watches { last: Duration },
    /// The manager crashes at the n-th step (from 0): before or after it waits for a response of the API server, or for
    /// an event.
    Kill { step: usize },
    /// Every call to a path that contains this is rejected with this code, until [`Faults::calm`].
    Deny { path: &'static str, code: u16 },
    /// The server of an API group is down, until [`Faults::calm`]: discovery reports the group as stale, and every call
    /// to it gets a
    /// 503. A group that is not served at all appears in discovery by name, like an aggregated API.
    Dead { group: &'static str },
    /// The n-th watch (from 0) starts at a compacted version: 410 before any event.
    Compacted { nth: usize },
    /// In this percentage of calls, drawn from this seed.
    Storm { percent: u64, seed: u64 },
    /// In the n-th call (from 0) that the API server makes to these.
    Reply { of: Callee, nth: usize, what: OnReply },
    /// In every call that the API server makes to these, until [`Faults::calm`].
    Replies { of: Callee, what: OnReply },
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { nth, what } => write!(f, "write {nth}: {what:?}"),
            Self::Event { nth, what } => write!(f, "event {nth}: {what:?}"),
            Self::Events { what } => write!(f, "every event: {what:?}"),
            Self::Watches { last } => write!(f, "every watch lasts {last:?}"),
            Self::Kill { step } => write!(f, "killed at step {step}"),
            Self::Deny { path, code } => write!(f, "{path} answers {code}"),
            Self::Dead { group } => write!(f, "the server of {group} is down"),
            Self::Compacted { nth } => write!(f, "watch {nth} begins too late"),
            Self::Storm { percent, seed } => write!(f, "{percent}% of calls fail (seed {seed})"),
            Self::Reply { of, nth, what } => write!(f, "call {nth} of {of:?}: {what:?}"),
            Self::Replies { of, what } => write!(f, "every call of {of:?}: {what:?}"),
        }
    }
}

/// The faults of a run, and its progress. Cheap to clone. Survives the manager's crashes.
#[derive(Clone)]
pub struct Faults(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    crash: Notify,
    trace: Trace,
}

struct State {
    faults: Vec<Fault>,
    writes: usize,
    events: usize,
    steps: usize,
    lists: usize,
    watches: usize,
    /// The number of calls to each.
    calls: BTreeMap<Callee, usize>,
    view: View,
    storm: Option<(u64, setpoint::Rng)>,
    /// Resources to which writes are rejected, each with the code.
    refused: Vec<(&'static str, u16)>,
}

/// The state that managers see when they start.
enum View {
    Current,
    /// The current state, which is also remembered.
    Remembered(BTreeMap<String, (Vec<Object>, String)>),
    /// The remembered state, each list once.
    Shown(BTreeMap<String, (Vec<Object>, String)>),
}

impl Faults {
    pub fn new(faults: Vec<Fault>, trace: Trace) -> Self {
        let storm = faults.iter().find_map(|fault| match fault {
            Fault::Storm { percent, seed } => Some((*percent, setpoint::Rng::seeded(*seed))),
            _ => None,
        });
        let state = Mutex::new(State {
            faults,
            writes: 0,
            events: 0,
            steps: 0,
            lists: 0,
            watches: 0,
            calls: BTreeMap::new(),
            view: View::Current,
            storm,
            refused: Vec::new(),
        });
        Self(Arc::new(Inner { state, crash: Notify::new(), trace }))
    }

    /// Counts a step. If the manager crashes at this step, never returns.
    pub(crate) async fn step(&self) {
        if self.is_last_step() {
            match self.crash().await {}
        }
    }

    fn is_last_step(&self) -> bool {
        let mut state = self.0.state.lock();
        let step = Fault::Kill { step: state.steps };
        state.steps += 1;
        state.faults.contains(&step)
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> usize {
        self.0.state.lock().steps
    }

    /// Returns how a call to this path is rejected, if it is.
    pub(crate) fn denied(&self, path: &str) -> Option<OnCall> {
        self.0.state.lock().faults.iter().find_map(|fault| match fault {
            Fault::Deny { path: denied, code } if path.contains(denied) => Some(OnCall::Fail(*code)),
            Fault::Dead { group } => {
                let rest = path.strip_prefix("/apis/")?.strip_prefix(group)?;
                (rest.is_empty() || rest.starts_with('/')).then_some(OnCall::Fail(503))
            }
            _ => None,
        })
    }

    /// Returns the groups whose servers are down.
    pub(crate) fn dead_groups(&self) -> Vec<&'static str> {
        let dead = |fault: &Fault| match fault {
            Fault::Dead { group } => Some(*group),
            _ => None,
        };
        self.0.state.lock().faults.iter().filter_map(dead).collect()
    }

    /// Counts an opened watch. Returns whether its version is compacted.
    pub(crate) fn is_compacted(&self) -> bool {
        let mut state = self.0.state.lock();
        let fault = Fault::Compacted { nth: state.watches };
        state.watches += 1;
        state.faults.contains(&fault)
    }

    /// Returns how many lists informers have requested, and how many watches they have opened.
    pub fn listed_and_watched(&self) -> (usize, usize) {
        let state = self.0.state.lock();
        (state.lists, state.watches)
    }

    /// From now on, remembers the first list of each kind that managers read.
    pub(crate) fn remember_view(&self) {
        self.0.state.lock().view = View::Remembered(BTreeMap::new());
    }

    /// Shows the remembered state to the next manager, like a stale API server.
    pub(crate) fn show_remembered_view(&self) {
        let mut state = self.0.state.lock();
        if let View::Remembered(lists) = &mut state.view {
            state.view = View::Shown(std::mem::take(lists));
        }
    }

    /// Returns a list from the remembered state.
    pub(crate) fn older_list(&self, kind: &Kind) -> Option<(Vec<Object>, String)> {
        match &mut self.0.state.lock().view {
            View::Shown(lists) => lists.remove(&kind.to_string()),
            _ => None,
        }
    }

    pub(crate) fn listed(&self, kind: &Kind, objects: &[Object], resource_version: &str) {
        let mut state = self.0.state.lock();
        state.lists += 1;
        if let View::Remembered(lists) = &mut state.view {
            let list = (objects.to_vec(), resource_version.to_owned());
            lists.entry(kind.to_string()).or_insert(list);
        }
    }

    /// Counts a write to a path, and returns its fault.
    pub(crate) fn on_write(&self, path: &str) -> Option<OnCall> {
        let mut state = self.0.state.lock();
        let nth = state.writes;
        state.writes += 1;
        if let Some((_, code)) =
            state.refused.iter().find(|(resource, _)| path.split('/').any(|part| part == *resource))
        {
            return Some(OnCall::Fail(*code));
        }
        let planned = state.faults.iter().find_map(|fault| match fault {
            Fault::Call { nth: at, what } if *at == nth => Some(*what),
            _ => None,
        });
        planned.or_else(|| state.storm())
    }

    /// Counts an event, and returns its fault.
    pub(crate) fn on_event(&self) -> Option<OnEvent> {
        let mut state = self.0.state.lock();
        let nth = state.events;
        state.events += 1;
        state.faults.iter().find_map(|fault| match fault {
            Fault::Event { nth: at, what } if *at == nth => Some(*what),
            Fault::Events { what } => Some(*what),
            _ => None,
        })
    }

    /// Counts a call, waits if it is delayed, and returns the fault that replaces the response.
    pub(crate) async fn on_reply(&self, callee: Callee) -> Option<Lost> {
        match self.count_call(callee)? {
            OnReply::Drop => Some(Lost::Dropped),
            OnReply::Fail(code) => Some(Lost::Failed(code)),
            OnReply::Delay(pause) => {
                tokio::time::sleep(pause).await;
                None
            }
        }
    }

    fn count_call(&self, callee: Callee) -> Option<OnReply> {
        let mut state = self.0.state.lock();
        let calls = state.calls.entry(callee).or_default();
        let call = *calls;
        *calls += 1;
        state.faults.iter().find_map(|fault| match fault {
            Fault::Reply { of, nth, what } if (*of, *nth) == (callee, call) => Some(*what),
            Fault::Replies { of, what } if *of == callee => Some(*what),
            _ => None,
        })
    }

    /// Returns how often the API server has called these.
    pub fn calls(&self, callee: Callee) -> usize {
        self.0.state.lock().calls.get(&callee).copied().unwrap_or(0)
    }

    /// Returns how long watches last, if limited.
    pub(crate) fn watches_last(&self) -> Option<Duration> {
        self.0.state.lock().faults.iter().find_map(|fault| match fault {
            Fault::Watches { last } => Some(*last),
            _ => None,
        })
    }

    /// Adds a fault from now on.
    pub fn add(&self, fault: Fault) {
        self.0.state.lock().faults.push(fault);
    }

    /// Rejects every write to a resource with this code from now on.
    pub fn refuse(&self, resource: &'static str, code: u16) {
        self.0.state.lock().refused.push((resource, code));
    }

    /// Crashes the manager. The caller is never polled again.
    pub(crate) async fn crash(&self) -> std::convert::Infallible {
        self.0.trace.record("crash");
        self.0.crash.notify_one();
        std::future::pending().await
    }

    /// Crashes the manager immediately, whatever it is doing.
    pub(crate) fn kill(&self) {
        self.0.trace.record("killed");
        self.0.crash.notify_one();
    }

    /// Waits for a crash.
    pub(crate) async fn crashed(&self) {
        self.0.crash.notified().await;
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Returns the number of writes and events so far.
    pub fn seen(&self) -> (usize, usize) {
        let state = self.0.state.lock();
        (state.writes, state.events)
    }

    /// Ends storms and all rejections. Faults stop, and the cluster must settle.
    pub fn calm(&self) {
        let mut state = self.0.state.lock();
        state.storm = None;
        state.refused.clear();
        let is_over =
            |fault: &Fault| matches!(fault, Fault::Deny { .. } | Fault::Dead { .. } | Fault::Replies { .. });
        state.faults.retain(|fault| !is_over(fault));
    }
}

impl State {
    /// Returns one of the ways in which a busy API server fails.
    fn storm(&mut self) -> Option<OnCall> {
        let (percent, rng) = self.storm.as_ref()?;
        if rng.below(100) >= *percent {
            return None;
        }
        let ways = [OnCall::Fail(409), OnCall::Fail(429), OnCall::Fail(500), OnCall::Fail(503)];
        let lost = [OnCall::DropBefore, OnCall::DropAfter];
        let all: Vec<OnCall> = ways.into_iter().chain(lost).collect();
        Some(all[rng.below(all.len() as u64) as usize])
    }
}
