//! Decides on expired intentions by reading the live objects.

use std::time::Duration;

use futures::future::BoxFuture;
use setpoint::Runnable;
use tokio_util::sync::CancellationToken;

use crate::Shadow;
use crate::family::Family;
use crate::guard::{Live, is_emptied, read};
use crate::intention::{Expected, Intention, Verdict};
use crate::ledger::ExpiredWrite;
use crate::observed::{LiveCreate, LiveWrite};
use crate::report::{Difference, Finding};
use crate::target::Target;

/// The interval between checks of the ledger.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a controller may take to reconcile again and to repeat an intention.
const RECONCILE_WAIT: Duration = Duration::from_secs(3);
/// How long a read may take. A request that is never answered must not end all decisions.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of intentions decided in a row, each with one or two reads.
const MAX_BATCH: usize = 200;

pub(crate) struct Verifier {
    shadow: Shadow,
    client: kube::Client,
}

impl Verifier {
    pub(crate) fn new(shadow: Shadow, client: kube::Client) -> Self {
        Self { shadow, client }
    }
}

impl Runnable for Verifier {
    fn name(&self) -> &str {
        "shadow"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let deciding = async {
                loop {
                    self.shadow.sleep(INTERVAL).await;
                    self.shadow.conclude(&self.client).await;
                }
            };
            // Intentions that are not decided when a read is cancelled stay pending in the report.
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = deciding => {}
            }
        })
    }
}

/// Compares everything that is pending with the live objects.
pub(crate) async fn recheck(shadow: &Shadow, client: &kube::Client) {
    let undecided = shadow.lock().undecided();
    for id in undecided {
        let targets = shadow.lock().targets(&id);
        for target in targets {
            match read(client, &target.read_path()).await {
                Ok(Live::Found(live)) if target.name.is_some() => shadow.lock().read(&id, &target, &live),
                Ok(Live::Found(list)) if is_emptied(&list) => shadow.lock().observe_gone(&id),
                Ok(Live::Missing) => shadow.lock().observe_gone(&id),
                _ => {}
            }
        }
    }
}

/// Reads a live object. `None` if it cannot be read now.
async fn read_in_time(client: &kube::Client, target: &Target) -> Option<Live> {
    let path = target.read_path();
    tokio::time::timeout(READ_TIMEOUT, read(client, &path)).await.ok()?.ok()
}

impl Shadow {
    async fn conclude(&self, client: &kube::Client) {
        let now = self.instant();
        let due = self.lock().due(now, MAX_BATCH);
        for one in due {
            let verdict = match &one {
                ExpiredWrite::Named(_, intention) => match self.evaluate(client, intention).await {
                    Some(verdict) => verdict,
                    None => {
                        self.lock().postpone(one, RECONCILE_WAIT);
                        continue;
                    }
                },
                ExpiredWrite::Generated(family, intention) => {
                    self.evaluate_generated(client, family, intention).await
                }
            };
            self.lock().conclude(one, verdict);
        }
        self.find_missing();
    }

    /// Evaluates an intention. `None` if its controller may still repeat it.
    async fn evaluate(&self, client: &kube::Client, intention: &Intention) -> Option<Verdict> {
        let live = match read_in_time(client, &intention.target).await {
            Some(Live::Found(live)) => Some(live),
            Some(Live::Missing) => None,
            // The live object cannot be read now, so the write may have happened.
            Some(Live::Unknown(_)) | None => return None,
        };
        let verdict = match &intention.expected {
            Expected::Emptied if live.as_ref().is_none_or(is_emptied) => Verdict::Matched,
            Expected::Emptied => Verdict::NotDone,
            _ => intention.evaluate(live.as_ref(), self.lock().comparison),
        };
        if matches!(verdict, Verdict::Matched | Verdict::Superseded) {
            return Some(verdict);
        }
        match intention.challenged.map(|at| self.instant().saturating_duration_since(at)) {
            // It has reconciled again, and has not repeated it.
            Some(since) if since >= RECONCILE_WAIT => Some(Verdict::Superseded),
            Some(_) => None,
            None if self.is_superseded(client, intention).await => Some(Verdict::Superseded),
            None => Some(verdict),
        }
    }

    async fn evaluate_generated(
        &self,
        client: &kube::Client,
        family: &Family,
        intention: &Intention,
    ) -> Verdict {
        if self.is_superseded(client, intention).await {
            return Verdict::Superseded;
        }
        let mut ledger = self.lock();
        let comparison = ledger.comparison;
        let Expected::Created(wanted) = &intention.expected else { return Verdict::NotDone };
        // It may have been created after the intention expired, when no event could match it any more.
        if ledger.observed.claim(family, wanted, comparison) {
            return Verdict::Matched;
        }
        if !family.is_unique() {
            let other = ledger.observed.take_any(family);
            return other.map_or(Verdict::NotDone, |other| {
                Verdict::Differs(comparison.of_object(wanted, &other.object))
            });
        }
        match ledger.observed.last_created(family) {
            // The controller has seen the other object, and still wants this one.
            Some(other) if intention.last > other.at + RECONCILE_WAIT => {
                Verdict::Differs(comparison.of_object(wanted, &other.object))
            }
            Some(_) => Verdict::Superseded,
            None => Verdict::NotDone,
        }
    }

    /// Whether the owner has changed, or the namespace is terminating.
    async fn is_superseded(&self, client: &kube::Client, intention: &Intention) -> bool {
        if self.lock().has_new_input(intention.input.as_ref()) || self.is_replaced(intention) {
            return true;
        }
        let Some(namespace) = intention.target.own_namespace() else { return false };
        match read_in_time(client, &namespace).await {
            Some(Live::Found(namespace)) => namespace["metadata"]["deletionTimestamp"].is_string(),
            Some(Live::Missing) => true,
            Some(Live::Unknown(_)) | None => false,
        }
    }

    /// Whether another object of the same owner was deleted instead. The choice depends on the second in which a
    /// controller compares their ages.
    fn is_replaced(&self, intention: &Intention) -> bool {
        let Expected::Gone { .. } = intention.expected else { return false };
        let owner = intention.input.as_ref().map(|input| input.uid.as_str());
        owner.is_some_and(|owner| self.lock().observed.take_deletion(owner))
    }

    /// Reports the live writes that no intention has explained within the window.
    fn find_missing(&self) {
        let Some(limit) = self.instant().checked_sub(self.config().window) else { return };
        let mut ledger = self.lock();
        let created = ledger.observed.unclaimed_before(limit);
        let changed = ledger.observed.unexplained_before(limit);
        drop(ledger);
        for (family, LiveCreate { name, time, .. }) in created {
            let target = Target::collection(&family.resource, family.namespace.as_deref()).named(&name);
            self.missing(&target, true, time);
        }
        for (id, LiveWrite { is_creation, subresource, time, .. }) in changed {
            let target = Target::collection(&id.resource, id.namespace.as_deref()).named(&id.name);
            self.missing(&Target { subresource, ..target }, is_creation, time);
        }
    }

    fn missing(&self, target: &Target, is_creation: bool, time: jiff::Timestamp) {
        let (config, mut ledger) = (self.config(), self.lock());
        if !config.expected.contains(&target.resource) {
            return;
        }
        let verb = if is_creation { "create" } else { "update" };
        let is_scale = target.subresource.as_deref() == Some("scale");
        if is_scale || (!is_creation && config.periodic.contains(&target.resource)) {
            ledger.accepted += 1;
            ledger.count(&config.manager, verb, "accepted");
            return;
        }
        ledger.missing += 1;
        ledger.count(&config.manager, verb, "missing");
        ledger.findings.list(Difference {
            finding: Finding::Missing,
            controller: config.manager.clone(),
            verb,
            resource: target.resource.to_string(),
            subresource: target.subresource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone().unwrap_or_default(),
            message: "the cluster has a write that was not intended here".into(),
            fields: Vec::new(),
            first: time,
            last: time,
            count: 1,
            resolved: false,
            id: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use setpoint::metrics::Metrics;
    use setpoint::{Clock, Object, Rng, Runtime};

    use super::*;
    use crate::Config;
    use crate::intention::Verb;

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_created_after_its_intention_expired_matches_it() {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let shadow = Shadow::new(Config::default(), Runtime { clock, rng: Rng::seeded(1) }, Metrics::new());
        let service = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
        });
        let client = kube::Client::new(service, "default");
        let target = Target::parse("/api/v1/namespaces/shop/pods").expect("a path");
        let metadata = json!({"name": "web-2xb7k", "generateName": "web-", "namespace": "shop", "uid": "1", "resourceVersion": "5"});
        let pod = json!({"metadata": metadata});
        let object = Object::from_json(pod.to_string().into()).expect("an object");
        let (family, live) = Family::of(&target, &pod).expect("a generated name");
        let create = LiveCreate::new(&object, live, false, shadow.instant(), shadow.now());
        shadow.lock().observed.created(family.clone(), create);
        let wanted = json!({"metadata": {"generateName": "web-"}});
        let intention = Intention {
            controller: "test".into(),
            verb: Verb::Create,
            target,
            expected: Expected::Created(Arc::new(wanted)),
            input: None,
            at: shadow.instant(),
            last: shadow.instant(),
            time: shadow.now(),
            count: 1,
            reported: None,
            challenged: None,
        };
        assert_eq!(shadow.evaluate_generated(&client, &family, &intention).await, Verdict::Matched);
    }
}
