//! What the builder accepts as a reconciler: a function of the object, a function of the key, or a [`Reconciler`].

use std::marker::PhantomData;

use super::builder::Wiring;
use crate::object::DecodeError;
use crate::{Cached, Context, Informer, Key, Object, Outcome, ReconcileError, Reconciler, View};

/// An object as a reconcile function takes it: [`Cached`] for a kind that is known at compile time, or [`Object`].
pub trait Subject: Sized + Send + Sync + 'static {
    /// Reads the object from the cache's copy.
    fn of(object: Object) -> Result<Self, DecodeError>;
}

impl<V: View> Subject for Cached<V> {
    fn of(object: Object) -> Result<Self, DecodeError> {
        Self::new(object)
    }
}

impl Subject for Object {
    fn of(object: Object) -> Result<Self, DecodeError> {
        Ok(object)
    }
}

/// What [`Builder::run`](super::Builder::run) accepts, for a controller of `T`:
///
/// - an `async fn(T, Context) -> Result<O, ReconcileError>`
/// - an `async fn(Key, Context) -> Result<O, ReconcileError>`
/// - a [`Reconciler`] of object keys
///
/// `O` is [`Outcome`], or `()` for [`Outcome::Settled`]. `M` tells the three apart and is always inferred.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::prelude::*;
/// fn printer(context: &Context) -> Controller {
///     Controller::for_::<ConfigMap>(context, "printer").run(print)
/// }
/// async fn print(key: Key, context: Context) -> Result<Outcome, ReconcileError> {
///     let map = context.cached::<ConfigMap>(&key).await?;
///     println!("{key} {}", if map.is_some() { "exists" } else { "is gone" });
///     Ok(Outcome::CheckAfter(std::time::Duration::from_secs(60)))
/// }
/// ```
pub trait IntoReconciler<T, M> {
    /// Makes the reconciler.
    fn into_reconciler(self, wiring: Wiring) -> impl Reconciler<Key = Key>;
}

/// Marks functions of the object. See [`IntoReconciler`].
pub struct ByObject<O>(PhantomData<O>);

/// Marks functions of the key. See [`IntoReconciler`].
pub struct ByKey<O>(PhantomData<O>);

/// Marks reconcilers. See [`IntoReconciler`].
pub struct ByReconciler;

impl<R: Reconciler<Key = Key>, T> IntoReconciler<T, ByReconciler> for R {
    fn into_reconciler(self, _: Wiring) -> impl Reconciler<Key = Key> {
        self
    }
}

impl<T, F, R, O> IntoReconciler<T, ByKey<O>> for F
where
    F: Fn(Key, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, ReconcileError>> + Send + 'static,
    O: Into<Outcome>,
{
    fn into_reconciler(self, wiring: Wiring) -> impl Reconciler<Key = Key> {
        let context = wiring.context().clone();
        KeyReconciler(move |key: &Key| {
            let running = self(key.clone(), context.clone());
            async move { running.await.map(Into::into) }
        })
    }
}

impl<T, F, R, O> IntoReconciler<T, ByObject<O>> for F
where
    T: Subject,
    F: Fn(T, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, ReconcileError>> + Send + 'static,
    O: Into<Outcome>,
{
    fn into_reconciler(self, wiring: Wiring) -> impl Reconciler<Key = Key> {
        let (context, primary) = (wiring.context().clone(), wiring.primary().clone());
        KeyReconciler(move |key: &Key| {
            let running = current::<T>(&primary, key).map(|found| found.map(|it| self(it, context.clone())));
            async move {
                match running? {
                    Some(running) => running.await.map(Into::into),
                    None => Ok(Outcome::Settled),
                }
            }
        })
    }
}

/// Returns the object with this key, unless it is gone or being deleted.
fn current<T: Subject>(primary: &Informer, key: &Key) -> Result<Option<T>, DecodeError> {
    let object = primary.objects().get(key).filter(|object| !object.meta().is_being_deleted());
    object.map(T::of).transpose()
}

/// A reconciler made from a function.
struct KeyReconciler<F>(F);

impl<F, R> Reconciler for KeyReconciler<F>
where
    F: Fn(&Key) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, ReconcileError>> + Send,
{
    type Key = Key;

    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Outcome, ReconcileError>> + Send {
        (self.0)(key)
    }
}
