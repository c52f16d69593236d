//! The parts of an explanation: a tree of objects with states, evidence and next steps, and the root cause.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::kinds::GroupKind;
use crate::text::clip;

/// How far an object is from its desired state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It matches its spec.
    #[default]
    Converged,
    /// It will converge on its own.
    Progressing,
    /// It could not be determined, usually because a permission is missing.
    Unknown,
    /// It will not converge unless something changes.
    Blocked,
    /// It has ended without converging.
    Failed,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Progressing => "progressing",
            Self::Unknown => "unknown",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
        }
    }

    /// Whether something has to change.
    pub fn is_stuck(self) -> bool {
        matches!(self, Self::Blocked | Self::Failed)
    }
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ObjectRef {
    #[serde(flatten)]
    pub kind: GroupKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectRef {
    pub fn new(kind: &GroupKind, namespace: Option<&str>, name: &str) -> Self {
        Self { kind: kind.clone(), namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {}/{}", self.kind.kind, clip(namespace), clip(&self.name)),
            None => write!(f, "{} {}", self.kind.kind, clip(&self.name)),
        }
    }
}

/// Where a piece of evidence was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    Condition,
    Event,
    Field,
    Log,
    Controller,
}

/// A fact that supports the finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub source: Source,
    /// The condition and its status, the reason of the event, the path of the field.
    pub name: String,
    pub value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
}

impl Evidence {
    pub fn field(path: &str, value: impl fmt::Display) -> Self {
        Self::new(Source::Field, path, &value.to_string(), None)
    }

    pub fn new(source: Source, name: &str, value: &str, time: Option<Timestamp>) -> Self {
        Self { source, name: clip(name), value: clip(value), time }
    }
}

/// What happens without intervention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Next {
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// The reason why an object does not converge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The problem.
    pub text: String,
    /// The fix.
    pub fix: String,
    /// The cause is here, regardless of objects below.
    #[serde(skip)]
    pub is_root: bool,
}

/// The root cause: the first line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    pub object: ObjectRef,
    pub text: String,
    pub fix: String,
    /// The number of objects with this cause.
    pub count: usize,
}

/// An object in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    pub object: ObjectRef,
    pub state: State,
    pub summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Next>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Node>,
    /// How many more objects are in the same state for the same reason.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The maximum number of pieces of evidence and of next steps per object: an object has a dozen conditions, and more
/// evidence does not help.
const MAX_FACTS: usize = 12;

impl Node {
    pub fn new(object: ObjectRef) -> Self {
        Self {
            object,
            state: State::Converged,
            summary: String::new(),
            problem: None,
            evidence: Vec::new(),
            next: Vec::new(),
            children: Vec::new(),
            more: 0,
        }
    }

    pub fn with(mut self, state: State, summary: impl AsRef<str>) -> Self {
        self.state = state;
        self.summary = clip(summary.as_ref());
        self
    }

    pub fn converged(self, summary: impl AsRef<str>) -> Self {
        self.with(State::Converged, summary)
    }

    pub fn progressing(self, summary: impl AsRef<str>) -> Self {
        self.with(State::Progressing, summary)
    }

    pub fn unknown(self, summary: impl AsRef<str>) -> Self {
        self.with(State::Unknown, summary)
    }

    /// Blocked: by what, and the fix.
    pub fn blocked(self, text: impl AsRef<str>, fix: impl AsRef<str>) -> Self {
        self.stuck(State::Blocked, text, fix)
    }

    pub fn failed(self, text: impl AsRef<str>, fix: impl AsRef<str>) -> Self {
        self.stuck(State::Failed, text, fix)
    }

    fn stuck(self, state: State, text: impl AsRef<str>, fix: impl AsRef<str>) -> Self {
        let problem = Problem { text: clip(text.as_ref()), fix: clip(fix.as_ref()), is_root: false };
        let mut node = self.with(state, text);
        node.problem = Some(problem);
        node
    }

    /// Describes an object in progress, in case nothing below it is stuck.
    pub fn because(mut self, text: impl AsRef<str>, fix: impl AsRef<str>) -> Self {
        self.problem = Some(Problem { text: clip(text.as_ref()), fix: clip(fix.as_ref()), is_root: false });
        self
    }

    /// Makes its own problem the cause, regardless of objects below.
    pub fn root(mut self) -> Self {
        if let Some(problem) = &mut self.problem {
            problem.is_root = true;
        }
        self
    }

    pub fn evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self.evidence.truncate(MAX_FACTS);
        self
    }

    pub fn next(mut self, what: impl AsRef<str>, at: Option<Timestamp>) -> Self {
        if self.next.len() < MAX_FACTS {
            self.next.push(Next { what: clip(what.as_ref()), at });
        }
        self
    }

    pub fn children(mut self, children: impl IntoIterator<Item = Node>) -> Self {
        self.children.extend(children);
        self
    }

    /// Returns the worst state of the objects below.
    pub fn worst_child(&self) -> State {
        self.children.iter().map(|child| child.state).max().unwrap_or_default()
    }
}

/// Why an object has not converged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub state: State,
    /// The root cause and the fix. `None` if the object has converged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    pub headline: String,
    /// Whether the object exists and could be read.
    #[serde(skip)]
    pub found: bool,
    pub root: Node,
    /// The objects that could not be read, and the missing permissions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}
