//! Views of the store for authorizers and webhooks.
//!
//! A view follows the store's history. A request first brings it up to the newest revision, so an acknowledged write
//! applies to the next request. It is created on first use.
//!
//! A view never does without a record that cannot be read: a webhook or a policy would silently stop to apply. Until the
//! record can be read, is replaced or removed, using the view is an error.

use std::sync::Arc;

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use setpoint_store::{Error, EventKind, ListOptions, Record, Resource, Store, Watch, WatchError};

/// State derived from some resources.
pub(crate) trait View: Default + Send + Sync {
    /// Distinguishes the resources that the view is built from.
    type Source: Copy + Send + Sync;

    fn sources() -> Vec<(Self::Source, Resource)>;

    /// Applies a record that was written (`is_there`) or deleted.
    fn apply(&mut self, source: Self::Source, record: &Record, is_there: bool);
}

/// A view that is brought up to date on every access.
pub(crate) struct StoreView<V: View> {
    store: Arc<dyn Store>,
    fed: RwLock<Option<SyncedView<V>>>,
}

impl<V: View> StoreView<V> {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, fed: RwLock::new(None) }
    }

    /// Runs `look` on the current view.
    pub(crate) async fn with<T>(&self, look: impl FnOnce(&V) -> T) -> Result<T, Error> {
        loop {
            if let Some(fed) = self.current() {
                return Ok(look(&fed.view));
            }
            let loaded = SyncedView::load(&*self.store).await?;
            *self.fed.write() = Some(loaded);
        }
    }

    /// Returns the current view, if it has been loaded.
    ///
    /// The lock is held from the check that the view is current until the caller is done with it. Otherwise another
    /// request could replace the view with one loaded a while ago and bring back revoked rights.
    fn current(&self) -> Option<MappedRwLockReadGuard<'_, SyncedView<V>>> {
        let fed = self.fed.read();
        if fed.as_ref().is_some_and(SyncedView::is_current) {
            return RwLockReadGuard::try_map(fed, Option::as_ref).ok();
        }
        drop(fed);
        let mut slot = self.fed.write();
        if slot.as_mut()?.catch_up().is_err() {
            // It has passed over what it could not apply.
            *slot = None;
        }
        RwLockReadGuard::try_map(RwLockWriteGuard::downgrade(slot), Option::as_ref).ok()
    }
}

/// A view and its position in the store's history.
struct SyncedView<V: View> {
    view: V,
    watches: Vec<(V::Source, Watch)>,
}

impl<V: View> SyncedView<V> {
    /// Loads the view from the store.
    async fn load(store: &dyn Store) -> Result<Self, Error> {
        let mut view = V::default();
        let mut watches = Vec::new();
        for (source, resource) in V::sources() {
            let range = resource.all();
            let page = store.list(&range, ListOptions::default()).await?;
            for record in &page.records {
                view.apply(source, record, true);
            }
            watches.push((source, store.watch(range, page.revision)?));
        }
        Ok(Self { view, watches })
    }

    /// Whether the view reflects all changes to its own resources, regardless of changes to others.
    fn is_current(&self) -> bool {
        !self.watches.iter().any(|(_, watch)| watch.has_unread())
    }

    /// Applies pending events; fails if the view has to be loaded again, because the history no longer reaches back far
    /// enough or has a record that cannot be read.
    fn catch_up(&mut self) -> Result<(), WatchError> {
        for (source, watch) in &mut self.watches {
            loop {
                let events = match watch.try_next() {
                    Ok(Some(events)) => events,
                    Ok(None) | Err(WatchError::Closed) => break,
                    Err(behind) => return Err(behind),
                };
                for event in events {
                    let is_there = event.kind != EventKind::Deleted;
                    if is_there && event.record.unreadable().is_some() {
                        return Err(WatchError::FellBehind { seen: watch.revision() });
                    }
                    self.view.apply(*source, &event.record, is_there);
                }
            }
        }
        Ok(())
    }
}
