//! Probes the clusters in use, and runs their informers.
//!
//! Owns: nothing. Watches: the Secrets with credentials. Writes: nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint::{Context, Key, Outcome, ReconcileError, Reconciler, Runnable};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::members::{Member, Members, problem};

const NAME: &str = "cluster-probe";
/// The probe interval and timeout.
const EVERY: Duration = Duration::from_secs(10);
const WITHIN: Duration = Duration::from_secs(5);
/// How many clusters are probed concurrently: 256 of them take 32 rounds, which all time out within three minutes.
const WORKERS: usize = 8;

/// Returns the controller that maintains members.
pub(super) fn runnables(context: &Context, members: &Members) -> Vec<Box<dyn Runnable>> {
    let queue = members.shared().probes.clone();
    let controller = context
        .controller(NAME, queue, Prober(members.clone()))
        .workers(WORKERS)
        .waits_for(members.secrets());
    vec![Box::new(controller), Box::new(MemberInformers(members.clone()))]
}

/// Probes clusters.
struct Prober(Members);

impl Reconciler for Prober {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(member) = self.0.one_in_use(key.name()) else { return Ok(Outcome::Settled) };
        // An object, because a server without its store still reports its version.
        let path = ["api", "v1", "namespaces", "kube-system"];
        let asked = member.client.clone().with_timeout(WITHIN).get_path(&path, &[]).await;
        // A server that responds is reachable, even if it rejects the request.
        let found = asked.err().as_ref().and_then(problem);
        if member.reach.set(found) {
            self.0.tell(&member.name);
        }
        Ok(Outcome::CheckAfter(EVERY))
    }
}

/// Runs the informers of members.
struct MemberInformers(Members);

impl Runnable for MemberInformers {
    fn name(&self) -> &str {
        "cluster-informers"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        async move {
            let (mut tasks, mut running) = (JoinSet::new(), Vec::new());
            loop {
                self.start_and_stop(&mut tasks, &mut running);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return tasks.shutdown().await,
                    () = self.0.shared().changed.notified() => {}
                    Some(ended) = tasks.join_next() => {
                        if let Err(error) = ended && error.is_panic() {
                            std::panic::resume_unwind(error.into_panic());
                        }
                    }
                }
            }
        }
        .boxed()
    }
}

impl MemberInformers {
    fn start_and_stop(&self, tasks: &mut JoinSet<()>, running: &mut Vec<(Arc<Member>, AbortHandle)>) {
        let wanted = self.0.in_use();
        let is_wanted = |member: &Arc<Member>| wanted.iter().any(|other| Arc::ptr_eq(other, member));
        running.retain(|(member, task)| {
            let keep = is_wanted(member);
            if !keep {
                task.abort();
            }
            keep
        });
        for member in &wanted {
            if !running.iter().any(|(known, _)| Arc::ptr_eq(known, member)) {
                let informers = member.informers.clone();
                let task = tasks.spawn(async move { informers.run(CancellationToken::new()).await });
                running.push((member.clone(), task));
            }
        }
    }
}
