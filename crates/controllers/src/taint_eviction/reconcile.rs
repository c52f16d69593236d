//! Look at a pod; delete it when its time has come.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use setpoint::client::{Delete, Optional, Part, Patch};
use setpoint::object::DecodeError;
use setpoint::reconcile::Attempting;
use setpoint::recorder::Reference;
use setpoint::{
    Cached, Client, Clock, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Recorder,
};

use super::schedule::{Schedule, Verdict};
use super::toleration::stay;
use super::view::{Guest, Host};
use crate::workload::disruption_target::disruption_target;

pub(super) struct Evictor {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) pods: Lister<Guest>,
    pub(super) nodes: Lister<Host>,
    pub(super) schedule: Arc<Mutex<Schedule>>,
}

impl Reconciler for Evictor {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)? else {
            if self.schedule.lock().forget(key) {
                self.tell(key, "Cancelling deletion of Pod");
            }
            return Ok(Outcome::Settled);
        };
        if pod.node.is_empty() || pod.meta().is_being_deleted() {
            self.schedule.lock().forget(key);
            return Ok(Outcome::Settled);
        }
        match self.decide(&pod)? {
            Verdict::Stays { reprieved } => {
                if reprieved {
                    self.tell(key, "Cancelling deletion of Pod");
                }
                Ok(Outcome::Settled)
            }
            Verdict::GoesIn(time) => Ok(Outcome::CheckAfter(time)),
            Verdict::Goes => self.evict(&pod).await.map(|()| Outcome::Settled),
        }
    }
}

impl Evictor {
    /// A node that is gone takes no date back: its pods are collected anyway.
    fn decide(&self, pod: &Cached<Guest>) -> Result<Verdict, DecodeError> {
        let now = self.clock.instant();
        let node = self.nodes.get(&Key::cluster(&*pod.node))?;
        let mut schedule = self.schedule.lock();
        Ok(match node {
            Some(node) => schedule.decide(pod.key(), stay(&node.taints, &pod.tolerations), now),
            None => schedule.recall(pod.key(), now),
        })
    }

    async fn evict(&self, pod: &Cached<Guest>) -> Result<(), ReconcileError> {
        let (kind, key, uid) = (Kind::of::<Guest>(), pod.key(), &pod.meta().uid);
        self.tell(key, "Marking for deletion Pod");
        // Past the cache: what it says of itself is completed, not overwritten.
        let fresh = self.client.get(&kind, key).await.optional();
        let Some(fresh) = fresh.attempting(format!("look at pod {key} before it goes"))? else {
            return Ok(());
        };
        if fresh.meta().uid != *uid {
            return Ok(());
        }
        let (reason, message) = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        if let Some(condition) = disruption_target(&fresh, reason, message, self.clock.now()) {
            let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
            let told = self.client.patch(&kind, key, Part::Status, Patch::strategic(&patch)).await;
            told.optional().attempting(format!("say of pod {key} that it is made to go"))?;
        }
        let deleted = self.client.delete(&kind, key, &Delete::of_uid(&**uid)).await.optional();
        deleted.attempting(format!("delete pod {key}"))?;
        self.schedule.lock().forget(key);
        Ok(())
    }

    fn tell(&self, pod: &Key, what: &str) {
        let about = Reference {
            kind: "Pod".to_owned(),
            api_version: "v1".to_owned(),
            namespace: pod.namespace().unwrap_or_default().to_owned(),
            name: pod.name().to_owned(),
            ..Reference::default()
        };
        let message = format!("{what} {pod}");
        self.recorder.event_about(about, EventType::Normal, "TaintManagerEviction", message, BTreeMap::new());
    }
}
