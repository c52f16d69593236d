//! Runs one controller for each watch.
//!
//! Invariants:
//! - All tasks belong to the runnable's future. Dropping it ends them, as in a crash.
//! - When watches are replaced, the new controllers start after the old ones have ended.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint::backoff::Backoff;
use setpoint::handler::{Handler, Predicate, enqueue_mapped, enqueue_self, predicate};
use setpoint::informer::Registration;
use setpoint::shard::Sharded;
use setpoint::source::Selection;
use setpoint::{Context, Event, Informer, Key, Kind, Object, Queue, Reconciler, Runnable};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{How, Watch, WatchOptions};
use crate::ansible::{AnsibleWatch, PlayWiring, Plays};
use crate::dependents::Dependents;
use crate::fleet::{Kinds, label};
use crate::helm::{BY_RELEASE, HelmWatch, ReleaseWiring, Releases};
use crate::names::{CHART, secret_kind};
use crate::parents::{SharedInformers, annotations};

/// The delay between two looks for a kind that is not served.
const LOOKS: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30));

/// Runs the watches.
pub(super) struct Operators {
    context: Context,
    options: WatchOptions,
    informers: SharedInformers,
    kinds: Kinds,
}

/// A controller, and what to clean up after it.
struct Started {
    controller: BoxFuture<'static, ()>,
    dependents: Arc<Dependents>,
    followed: Vec<(Informer, Registration)>,
}

impl Operators {
    pub(super) fn new(context: &Context, options: &WatchOptions) -> Self {
        Self {
            informers: SharedInformers::new(context.informers.separate()),
            kinds: Kinds::new(&context.client, &context.runtime.clock),
            context: context.clone(),
            options: options.clone(),
        }
    }

    async fn manage(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let round = stop.child_token();
            let mut tasks = JoinSet::new();
            for watch in self.options.watches.get().iter() {
                let (operators, watch, round) = (self.clone(), watch.clone(), round.clone());
                tasks.spawn(async move { operators.run_one(&watch, round).await });
            }
            let is_over = |ended: Option<Result<(), tokio::task::JoinError>>| match ended {
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                ended => ended.is_none(),
            };
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    () = self.options.watches.changed() => break,
                    ended = tasks.join_next(), if !tasks.is_empty() => drop(is_over(ended)),
                }
            }
            round.cancel();
            while !is_over(tasks.join_next().await) {}
        }
    }

    async fn run_one(&self, watch: &Watch, stop: CancellationToken) {
        let Some(kind) = stop.run_until_cancelled(self.served(watch)).await else { return };
        if !kind.namespaced() && matches!(watch.how, How::Helm(_)) {
            tracing::error!(%kind, "a release has a namespace, so its kind must be namespaced");
            return;
        }
        let started = self.start(watch, &kind, stop);
        started.controller.await;
        started.dependents.end();
        self.informers.unfollow(started.followed);
    }

    /// Waits until a kind is served.
    async fn served(&self, watch: &Watch) -> Kind {
        let mut failures = 0;
        loop {
            match self.kinds.resolve_kind(&watch.kind.api_version(), &watch.kind.kind).await {
                Ok(kind) => return kind,
                Err(error) if failures == 0 => tracing::warn!(error = error.report(), "waiting for a kind"),
                Err(_) => {}
            }
            self.context.runtime.clock.sleep(LOOKS.delay(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    fn start(&self, watch: &Watch, kind: &Kind, stop: CancellationToken) -> Started {
        let name = label(&format!("{}-{}", watch.how.name(), watch.kind), watch.how.name());
        let queue = self.context.queue::<Key>(name);
        match &watch.how {
            How::Helm(helm) => self.start_helm(name, queue, watch, helm, kind, stop),
            How::Ansible(ansible) => self.start_ansible(name, queue, watch, ansible, kind, stop),
        }
    }

    fn start_helm(
        &self,
        name: &'static str,
        queue: Queue<Key>,
        watch: &Watch,
        helm: &HelmWatch,
        kind: &Kind,
        stop: CancellationToken,
    ) -> Started {
        let of_charts = Selection { labels: Some(CHART.to_owned()), ..Selection::default() };
        let dependents = Arc::new(Dependents::new(&self.informers, &queue, kind, of_charts));
        let mut followed = Vec::new();
        let parents =
            self.follow(kind, Selection::default(), enqueue_self(&queue).when(is_news()), &mut followed);
        // Only the metadata of revisions is kept: their records can have a megabyte each.
        let of_helm =
            Selection { labels: Some("owner=helm".into()), metadata_only: true, ..Selection::default() };
        let handler = enqueue_mapped(&queue, |secret: &Object| release_of(secret));
        let handler = handler.when(predicate::version_changed());
        let secrets = self.follow(&secret_kind(), of_helm, handler, &mut followed);
        secrets.add_index(
            BY_RELEASE,
            Arc::new(|secret| release_of(secret).iter().map(Key::to_string).collect()),
        );
        let reconciler = Releases::new(ReleaseWiring {
            kind: kind.clone(),
            selector: watch.selector.clone(),
            period: watch.period.or(Some(self.options.period)),
            watch: helm.clone(),
            helm: self.options.helm.clone(),
            client: self.context.client.clone(),
            clock: self.context.runtime.clock.clone(),
            recorder: self.context.recorder("helm-operator"),
            metrics: self.context.metrics.clone(),
            parents: parents.clone(),
            secrets: secrets.clone(),
            dependents: dependents.clone(),
            kinds: self.kinds.clone(),
            shows_overrides: self.options.shows_overrides,
            observer: self.options.observer.clone(),
        });
        let controller = self.control(name, queue, &[parents, secrets], reconciler, stop);
        Started { controller, dependents, followed }
    }

    fn start_ansible(
        &self,
        name: &'static str,
        queue: Queue<Key>,
        watch: &Watch,
        ansible: &AnsibleWatch,
        kind: &Kind,
        stop: CancellationToken,
    ) -> Started {
        let dependents = Dependents::new(&self.informers, &queue, kind, Selection::default()).ignoring_new();
        let dependents = Arc::new(dependents);
        let mut followed = Vec::new();
        let (by_labels, by_annotations) = (!watch.selector.is_empty(), ansible.watches_annotations);
        let is_news = move |event: &Event| match event {
            Event::Updated { old, new } => is_new_play(old, new, by_labels, by_annotations),
            _ => true,
        };
        let parents =
            self.follow(kind, Selection::default(), enqueue_self(&queue).when(is_news), &mut followed);
        let reconciler = Plays::new(PlayWiring {
            kind: kind.clone(),
            selector: watch.selector.clone(),
            period: watch.period,
            watch: ansible.clone(),
            ansible: self.options.ansible.clone(),
            client: self.context.client.clone(),
            clock: self.context.runtime.clock.clone(),
            recorder: self.context.recorder("ansible-operator"),
            metrics: self.context.metrics.clone(),
            parents: parents.clone(),
            dependents: dependents.clone(),
            observer: self.options.observer.clone(),
        });
        let controller = self.control(name, queue, &[parents], reconciler, stop);
        Started { controller, dependents, followed }
    }

    fn follow(
        &self,
        kind: &Kind,
        selection: Selection,
        handler: impl Handler,
        followed: &mut Vec<(Informer, Registration)>,
    ) -> Informer {
        let (informer, registration) = self.informers.change(|informers| {
            let informer = informers.select(kind, selection);
            let registration = informer.add_handler(handler);
            (informer, registration)
        });
        followed.push((informer.clone(), registration));
        informer
    }

    /// Returns a running controller. The first informer is that of the keys.
    fn control(
        &self,
        name: &'static str,
        queue: Queue<Key>,
        informers: &[Informer],
        reconciler: impl Reconciler<Key = Key>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let reconciler = Sharded::new(&self.context.shards, &queue, &informers[0], reconciler);
        let controller =
            self.context.controller(name, queue, reconciler).workers(self.options.workers.max(1));
        let mut controller = controller.persistent().reads_own_writes();
        for informer in informers {
            controller = controller.waits_for(informer);
        }
        controller.observe(&self.context.metrics);
        Box::new(controller).run(stop)
    }
}

/// Admits what may need something to be done: no writes of the status.
fn is_news() -> impl Predicate {
    predicate::generation_changed()
        .or(predicate::labels_changed())
        .or(predicate::updates(|old, new| {
            let (before, after) = (old.meta(), new.meta());
            before.is_being_deleted() != after.is_being_deleted()
                || before.finalizers != after.finalizers
                || annotations(old) != annotations(new)
        }))
        // A kind without generations changes only as a whole.
        .or(|event: &Event| event.object().meta().generation == 0)
}

/// Whether an update of an object should run its play.
fn is_new_play(old: &Object, new: &Object, by_labels: bool, by_annotations: bool) -> bool {
    let (before, after) = (old.meta(), new.meta());
    let differs = before.generation != after.generation
        || before.uid != after.uid
        || before.is_being_deleted() != after.is_being_deleted();
    let is_relabelled = by_labels && before.labels != after.labels;
    let is_annotated = by_annotations && annotations(old) != annotations(new);
    // A kind without generations changes only as a whole.
    differs || is_relabelled || is_annotated || after.generation == 0 && !old.same_version(new)
}

fn release_of(secret: &Object) -> Option<Key> {
    let name = secret.meta().label("name").filter(|_| secret.meta().label("owner") == Some("helm"))?;
    Some(secret.key().sibling(name))
}

impl Runnable for Operators {
    fn name(&self) -> &str {
        "watches"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        async move {
            let operators = Arc::new(*self);
            let informers = operators.informers.all().clone();
            let ended = CancellationToken::new();
            let reading = informers.run(ended.clone());
            let managing = async {
                operators.manage(stop).await;
                ended.cancel();
            };
            tokio::join!(reading, managing);
        }
        .boxed()
    }
}
