//! Runs of playbooks: the trait between the reconciler and the program.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::Play;
use crate::gateway::Access;

/// One run of a role or a playbook.
#[derive(Clone, Debug, PartialEq)]
pub struct AnsibleCall {
    /// What is run.
    pub play: Play,
    /// The namespace of the object.
    pub namespace: String,
    /// The variables: the spec of the object, and more about it.
    pub vars: Map<String, Value>,
    /// How much is logged, from 0 to 7.
    pub verbosity: u8,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlayResult {
    /// The number of tasks by their end.
    pub ok: u64,
    /// … that changed something.
    pub changed: u64,
    /// … that were skipped.
    pub skipped: u64,
    /// … that failed.
    pub failures: u64,
    /// What failed. Empty if the run succeeded.
    pub messages: Vec<String>,
    /// When the play wants to run again.
    pub again: Option<Duration>,
}

/// Runs playbooks: `ansible-playbook`, or a model of it in tests.
///
/// Invariant: dropping the future ends the run. It never changes anything after that.
pub trait Ansible: Send + Sync + 'static {
    /// Runs it once, with access to the API server. The error says why there is no result.
    fn run(&self, call: AnsibleCall, access: Arc<Access>) -> BoxFuture<'static, Result<PlayResult, String>>;
}
