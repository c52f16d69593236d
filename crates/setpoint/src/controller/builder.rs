//! The controller builder: the kind it reconciles, what it owns and watches, and how it reconciles.
//!
//! Invariant: every cache that a reconcile reads through the builder has synced before it is read, so no key is
//! reconciled against an empty cache.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::Controller;
use super::caches::Caches;
use super::subject::{IntoReconciler, Subject};
use crate::finalizer::{Finalizer, FinalizerAction};
use crate::handler::{Handler, Mapping, Predicate, enqueue_with};
use crate::queue::Priority;
use crate::shard::Sharded;
use crate::source::Selection;
use crate::{
    Cached, Context, Event, Informer, Key, Kind, Lister, Object, Outcome, Queue, ReconcileError, Reconciler,
    View,
};

/// Builds a [`Controller`]. Starts with [`Controller::for_`] and ends with [`run`](Self::run).
///
/// [`when`](Self::when), [`selecting`](Self::selecting) and [`priority`](Self::priority) apply to the kind that was
/// named just before.
///
/// ```
/// use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
/// use k8s_openapi::api::core::v1::Secret;
/// use setpoint::handler::predicate::generation_changed;
/// use setpoint::prelude::*;
///
/// fn deployments(context: &Context) -> Controller {
///     Controller::for_::<Deployment>(context, "deployment-restarter")
///         .when(generation_changed())
///         .owns::<ReplicaSet>()
///         .watches(|secret: &Cached<Secret>| {
///             let deployment = secret.meta().label("example.com/deployment")?;
///             Some(secret.key().sibling(deployment))
///         })
///         .run(restart)
///         .workers(2)
/// }
///
/// async fn restart(deployment: Cached<Deployment>, context: Context) -> Result<(), ReconcileError> {
///     let sets = context.cached_list::<ReplicaSet>(deployment.namespace()).await?;
///     println!("{} has {} sets", deployment.key(), sets.len());
///     Ok(())
/// }
/// ```
pub struct Builder<T> {
    context: Context,
    name: &'static str,
    queue: Option<Queue<Key>>,
    /// The first is the kind that the controller reconciles.
    sources: Vec<Watched>,
    finalizer: Option<(&'static str, CleanUp<T>)>,
    _subject: PhantomData<fn() -> T>,
}

/// A kind that the controller reads, and the keys to reconcile when one of its objects changes.
struct Watched {
    kind: Kind,
    selection: Selection,
    mapping: Option<Mapping>,
    predicates: Vec<Box<dyn Predicate>>,
    priority: Option<Priority>,
}

/// The cleanup to run before an object is removed.
type CleanUp<T> =
    Box<dyn Fn(T, Context) -> BoxFuture<'static, Result<Outcome, ReconcileError>> + Send + Sync>;

impl Controller<Key> {
    /// Starts to build a controller for the objects of a kind: it reconciles an object whenever it changes. `name` is
    /// used in logs, metrics and events, and as field manager.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::prelude::*;
    /// fn printer(context: &Context) -> Controller {
    ///     Controller::for_::<ConfigMap>(context, "printer").run(print)
    /// }
    /// async fn print(map: Cached<ConfigMap>, _: Context) -> Result<(), ReconcileError> {
    ///     println!("{} has {} entries", map.key(), map.data.as_ref().map_or(0, |data| data.len()));
    ///     Ok(())
    /// }
    /// ```
    pub fn for_<V: View>(context: &Context, name: &'static str) -> Builder<Cached<V>> {
        Builder::new(context, name, &V::kind())
    }

    /// Starts to build a controller for a kind that is known at run time. Its objects are not decoded.
    ///
    /// ```
    /// use setpoint::prelude::*;
    /// fn printer(context: &Context, kind: &Kind) -> Controller {
    ///     Controller::for_kind(context, "printer", kind).run(print)
    /// }
    /// async fn print(object: Object, _: Context) -> Result<(), ReconcileError> {
    ///     let spec = object.decode::<serde_json::Value>()?["spec"].take();
    ///     println!("{} is {spec}", object.key());
    ///     Ok(())
    /// }
    /// ```
    pub fn for_kind(context: &Context, name: &'static str, kind: &Kind) -> Builder<Object> {
        Builder::new(context, name, kind)
    }
}

impl<T: Subject> Builder<T> {
    fn new(context: &Context, name: &'static str, kind: &Kind) -> Self {
        let (queue, finalizer, sources, _subject) = (None, None, Vec::new(), PhantomData);
        let builder = Self { context: context.clone(), name, queue, sources, finalizer, _subject };
        builder.watching(kind, Some(Mapping::Itself))
    }

    /// Reconciles the managing controller of these objects when they change.
    pub fn owns<V: View>(self) -> Self {
        self.owns_kind(&V::kind())
    }

    /// Reconciles the managing controller of the objects of a kind that is known at run time.
    pub fn owns_kind(self, kind: &Kind) -> Self {
        let mapping = Mapping::Controller(self.sources[0].kind.clone());
        self.watching(kind, Some(mapping))
    }

    /// Reconciles the keys that `map` returns for these objects when they change. An object that cannot be decoded is
    /// logged and maps to nothing.
    pub fn watches<V: View, I: IntoIterator<Item = Key>>(
        self,
        map: impl Fn(&Cached<V>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watches_kind(&V::kind(), move |object| {
            let decoded = Cached::<V>::new(object.clone()).inspect_err(|error| {
                tracing::warn!(%error, "cannot tell which keys an object concerns");
            });
            decoded.iter().flat_map(&map).collect::<Vec<Key>>()
        })
    }

    /// Reconciles the keys that `map` returns for the objects of a kind that is known at run time.
    pub fn watches_kind<I: IntoIterator<Item = Key>>(
        self,
        kind: &Kind,
        map: impl Fn(&Object) -> I + Send + Sync + 'static,
    ) -> Self {
        let mapped = move |object: &Object, add: &mut dyn FnMut(Key)| map(object).into_iter().for_each(add);
        self.watching(kind, Some(Mapping::Keys(Arc::new(mapped))))
    }

    /// Caches these objects before the first reconcile, without reconciling anything when they change.
    pub fn reads<V: View>(self) -> Self {
        self.watching(&V::kind(), None)
    }

    /// Restricts the kind named just before to events that `predicate` admits.
    pub fn when(mut self, predicate: impl Predicate) -> Self {
        self.last().predicates.push(Box::new(predicate));
        self
    }

    /// Caches only a selection of the kind named just before. Reads see only the selection too.
    pub fn selecting(mut self, selection: Selection) -> Self {
        self.last().selection = selection;
        self
    }

    /// Gives changes of the kind named just before a priority. Initial lists and resyncs stay low.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.last().priority = Some(priority);
        self
    }

    /// Uses this queue, for example with another rate limiter, instead of [`Context::queue`].
    pub fn queue(self, queue: Queue<Key>) -> Self {
        Self { queue: Some(queue), ..self }
    }

    /// Adds the finalizer `name` to every object before its first reconcile, and calls `clean_up` before an object is
    /// removed. The finalizer stays until `clean_up` returns [`Outcome::Settled`].
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::prelude::*;
    /// # async fn register(_: Cached<ConfigMap>, _: Context) -> Result<(), ReconcileError> { Ok(()) }
    /// # async fn unregister(_: Cached<ConfigMap>, _: Context) -> Result<(), ReconcileError> { Ok(()) }
    /// fn registrar(context: &Context) -> Controller {
    ///     Controller::for_::<ConfigMap>(context, "registrar")
    ///         .finalizer("example.com/registration", unregister)
    ///         .run(register)
    /// }
    /// ```
    pub fn finalizer<F, O>(
        self,
        name: &'static str,
        clean_up: impl Fn(T, Context) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<O, ReconcileError>> + Send + 'static,
        O: Into<Outcome>,
    {
        let clean_up: CleanUp<T> = Box::new(move |object, context| {
            let cleaning = clean_up(object, context);
            Box::pin(async move { cleaning.await.map(Into::into) })
        });
        Self { finalizer: Some((name, clean_up)), ..self }
    }

    /// Finishes the controller with a function or a [`Reconciler`].
    ///
    /// An `async fn(object, Context)` is called with the current object. It is not called for objects that are being
    /// deleted: a [finalizer](Self::finalizer) is the place for cleanup. An `async fn(Key, Context)` and a reconciler
    /// are called with every key.
    pub fn run<M>(self, reconcile: impl IntoReconciler<T, M>) -> Controller {
        self.run_with(|wiring| reconcile.into_reconciler(wiring.clone()))
    }

    /// Finishes the controller with a reconciler that is built from its caches.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use setpoint::prelude::*;
    /// struct Copier { api: Api, maps: Lister<ConfigMap>, secrets: Lister<Secret> }
    /// impl Reconciler for Copier {
    ///     type Key = Key;
    ///     async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
    ///         println!("{}: {}", key, self.maps.get(key)?.is_some() && self.secrets.get(key)?.is_some());
    ///         Ok(Outcome::Settled)
    ///     }
    /// }
    /// fn copier(context: &Context) -> Controller {
    ///     Controller::for_::<ConfigMap>(context, "copier").run_with(|wiring| Copier {
    ///         api: wiring.context().api.clone(),
    ///         maps: wiring.lister(),
    ///         secrets: wiring.lister(),
    ///     })
    /// }
    /// ```
    pub fn run_with<R: Reconciler<Key = Key>>(self, make: impl FnOnce(&Wiring) -> R) -> Controller {
        let Self { context, name, queue, sources, finalizer, .. } = self;
        let queue = queue.unwrap_or_else(|| context.queue(name));
        let caches = Caches::default();
        let kind = sources[0].kind.clone();
        let informers: Vec<Informer> =
            sources.into_iter().map(|watched| watched.start(&context, &queue)).collect();
        informers.iter().for_each(|informer| caches.add(informer));
        let primary = informers[0].clone();
        let wiring =
            Wiring { context: context.of_controller(name, caches.clone()), primary: primary.clone() };
        let finalized = Finalized {
            finalizer: finalizer.map(|(name, clean_up)| {
                (Finalizer::new(context.client.clone(), kind, name), clean_up, wiring.context.clone())
            }),
            primary: primary.clone(),
            inner: make(&wiring),
        };
        if context.gate().is_some() {
            // The fleet shards the keys of all its clusters.
            return context.controller(name, queue, finalized).reading(caches).in_fleet();
        }
        let reconciler = Sharded::new(&context.shards, &queue, &primary, finalized);
        context.controller(name, queue, reconciler).reading(caches)
    }

    fn watching(mut self, kind: &Kind, mapping: Option<Mapping>) -> Self {
        let (selection, predicates, priority) = Default::default();
        self.sources.push(Watched { kind: kind.clone(), selection, mapping, predicates, priority });
        self
    }

    fn last(&mut self) -> &mut Watched {
        self.sources.last_mut().expect("there is always the kind that the controller is for")
    }
}

impl Watched {
    /// Requests the informer and connects it to the queue, or to that of a fleet.
    fn start(self, context: &Context, queue: &Queue<Key>) -> Informer {
        let Self { kind, selection, mapping, predicates, priority } = self;
        let informer = context.informers.select(&kind, selection);
        if let Some(mapping) = mapping {
            let admitted = move |event: &Event| predicates.iter().all(|one| one.admits(event));
            match context.gate().cloned() {
                None => informer.add_handler(enqueue_with(queue, mapping, priority, Some).when(admitted)),
                Some(gate) => {
                    let queue = gate.queue().clone();
                    let handler = enqueue_with(&queue, mapping, priority, move |key| gate.admit(key));
                    informer.add_handler(handler.when(admitted))
                }
            };
        }
        informer
    }
}

/// The parts for building a reconciler: the context, and the caches of its controller. See [`Builder::run_with`].
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// fn pods(wiring: &setpoint::controller::Wiring) -> setpoint::Lister<Pod> {
///     wiring.lister()
/// }
/// ```
#[derive(Clone)]
pub struct Wiring {
    context: Context,
    primary: Informer,
}

impl Wiring {
    /// Returns the context of the controller.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns a lister. The controller waits for its cache.
    pub fn lister<V: View>(&self) -> Lister<V> {
        self.informer(&V::kind()).lister()
    }

    /// Returns the informer for a kind. The controller waits for it.
    pub fn informer(&self, kind: &Kind) -> Informer {
        self.context.informer(kind)
    }

    /// Returns the informer for the objects that the controller reconciles.
    pub fn primary(&self) -> &Informer {
        &self.primary
    }
}

/// A reconciler that ensures a finalizer before each reconcile, and cleans up before an object is removed.
struct Finalized<T, R> {
    finalizer: Option<(Finalizer, CleanUp<T>, Context)>,
    primary: Informer,
    inner: R,
}

impl<T: Subject, R: Reconciler<Key = Key>> Reconciler for Finalized<T, R> {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let (Some((finalizer, clean_up, context)), Some(object)) =
            (&self.finalizer, self.primary.objects().get(key))
        else {
            return self.inner.reconcile(key).await;
        };
        match finalizer.action(&object) {
            FinalizerAction::Nothing | FinalizerAction::Reconcile => self.inner.reconcile(key).await,
            FinalizerAction::Ensure => {
                finalizer.ensure(&object).await?;
                self.inner.reconcile(key).await
            }
            FinalizerAction::CleanUp => {
                let outcome = clean_up(T::of(object.clone())?, context.clone()).await?;
                if outcome == Outcome::Settled {
                    finalizer.release(&object).await?;
                }
                Ok(outcome)
            }
        }
    }
}
