//! Counts open watches: limits their number, and estimates how many a write will notify.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::auth::User;
use crate::request::ResourceTarget;
use crate::status::Status;

/// Limits on open watches. In-process informers are not counted: they share the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchLimits {
    pub total: usize,
    pub per_user: usize,
}

impl Default for WatchLimits {
    /// Allows 5,000 nodes with four watches each; one client may have half of them. At about 50 KB for a watch whose
    /// client does not read, 20,000 take 1 GB.
    fn default() -> Self {
        Self { total: 20_000, per_user: 10_000 }
    }
}

/// The open watches.
#[derive(Clone, Default)]
pub(crate) struct Watches(Arc<Inner>);

#[derive(Default)]
struct Inner {
    limits: WatchLimits,
    open: AtomicUsize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Counts by user: never more entries than open watches.
    by_user: BTreeMap<String, usize>,
    /// By resource, group, namespace and name, each of which may be any.
    by_interest: BTreeMap<Box<str>, BTreeMap<Box<str>, ResourceWatches>>,
}

#[derive(Default)]
struct ResourceWatches {
    all: usize,
    by_namespace: BTreeMap<Box<str>, NamespaceWatches>,
}

#[derive(Default)]
struct NamespaceWatches {
    all: usize,
    by_name: BTreeMap<Box<str>, usize>,
}

/// An open watch; dropping it ends the count.
pub(crate) struct OpenWatch {
    watches: Watches,
    user: String,
    /// The target to count for the cost of writes, if it is counted.
    interest: Option<ResourceTarget>,
}

impl Watches {
    pub(crate) fn new(limits: WatchLimits) -> Self {
        Self(Arc::new(Inner { limits, ..Inner::default() }))
    }

    /// Registers a watch, unless there are too many.
    pub(super) fn open(&self, user: &User, target: &ResourceTarget) -> Result<OpenWatch, Status> {
        let shared = &self.0;
        let mut counts = shared.counts.lock();
        let of_user = counts.by_user.get(&user.name).copied().unwrap_or(0);
        if shared.open.load(Ordering::Relaxed) >= shared.limits.total {
            return Err(too_many(format_args!("the server has {} open watches", shared.limits.total)));
        }
        if of_user >= shared.limits.per_user {
            return Err(too_many(format_args!("{:?} has {of_user} open watches", user.name)));
        }
        *counts.by_user.entry(user.name.clone()).or_default() += 1;
        shared.open.fetch_add(1, Ordering::Relaxed);
        let interest = is_counted(target).then(|| target.clone());
        if let Some(interest) = &interest {
            counts.change(interest, 1);
        }
        Ok(OpenWatch { watches: self.clone(), user: user.name.clone(), interest })
    }

    /// Returns how many watches a write notifies.
    pub(super) fn notified_watches(&self, target: &ResourceTarget) -> u64 {
        if self.0.open.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.0.counts.lock().notified_watches(target) as u64
    }
}

/// Whether a watch is counted. As in v1.34, watches of a single node's pods are not: an index dispatches their events.
fn is_counted(target: &ResourceTarget) -> bool {
    target.resource != "pods" || !target.pins("spec.nodeName")
}

fn too_many(why: std::fmt::Arguments<'_>) -> Status {
    Status::too_many_requests(format!("too many watches: {why}, which is the limit"), 1)
}

impl Counts {
    fn change(&mut self, target: &ResourceTarget, by: isize) {
        let resource = self.by_interest.entry(target.resource.as_str().into()).or_default();
        let group = resource.entry(target.group.as_str().into()).or_default();
        let namespace = target.namespace.as_deref().unwrap_or("");
        let count = match (namespace, target.named()) {
            ("", None) => &mut group.all,
            (namespace, None) => &mut group.by_namespace.entry(namespace.into()).or_default().all,
            (namespace, Some(name)) => group
                .by_namespace
                .entry(namespace.into())
                .or_default()
                .by_name
                .entry(name.into())
                .or_default(),
        };
        *count = count.saturating_add_signed(by);
    }

    fn forget(&mut self, target: &ResourceTarget) {
        self.change(target, -1);
        // Only removes the entry of this watch: there may be thousands of others.
        let Some(groups) = self.by_interest.get_mut(&*target.resource) else { return };
        let Some(group) = groups.get_mut(&*target.group) else { return };
        let place = target.namespace.as_deref().unwrap_or("");
        if let Some(namespace) = group.by_namespace.get_mut(place) {
            if let Some(name) = target.named().filter(|name| namespace.by_name.get(*name) == Some(&0)) {
                namespace.by_name.remove(name);
            }
            if namespace.all == 0 && namespace.by_name.is_empty() {
                group.by_namespace.remove(place);
            }
        }
        if group.all == 0 && group.by_namespace.is_empty() {
            groups.remove(&*target.group);
        }
        if groups.is_empty() {
            self.by_interest.remove(&*target.resource);
        }
    }

    /// Counts the watches of all objects, of those in the namespace, and of this one.
    fn notified_watches(&self, target: &ResourceTarget) -> usize {
        let group = self.by_interest.get(&*target.resource).and_then(|groups| groups.get(&*target.group));
        let Some(group) = group else { return 0 };
        let namespace = group.by_namespace.get(target.namespace.as_deref().unwrap_or(""));
        let in_namespace = namespace.map_or(0, |namespace| {
            let name = target.name.as_deref().and_then(|name| namespace.by_name.get(name));
            namespace.all + name.copied().unwrap_or(0)
        });
        group.all + in_namespace
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut counts = self.watches.0.counts.lock();
        self.watches.0.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(count) = counts.by_user.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.by_user.remove(&self.user);
            }
        }
        if let Some(interest) = &self.interest {
            counts.forget(interest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(namespace: Option<&str>, name: Option<&str>) -> ResourceTarget {
        ResourceTarget {
            resource: "pods".into(),
            namespace: namespace.map(Into::into),
            name: name.map(Into::into),
            ..ResourceTarget::default()
        }
    }

    #[test]
    fn a_write_reaches_watches_of_all_of_its_namespace_and_of_its_object() {
        let watches = Watches::default();
        let user = User::anonymous();
        let of_node = ResourceTarget { field_selector: "spec.nodeName=n".into(), ..target(None, None) };
        let one = ResourceTarget { selected_name: Some("p".into()), ..target(Some("a"), None) };
        let targets = [target(None, None), target(Some("a"), None), target(Some("b"), None), of_node, one];
        let open: Vec<_> = targets.iter().map(|target| watches.open(&user, target).unwrap()).collect();
        assert_eq!(watches.notified_watches(&target(Some("a"), Some("p"))), 3);
        assert_eq!(watches.notified_watches(&target(Some("a"), None)), 2);
        assert_eq!(watches.notified_watches(&target(Some("c"), Some("p"))), 1);
        drop(open);
        assert_eq!(watches.notified_watches(&target(Some("a"), Some("p"))), 0);
        assert!(watches.0.counts.lock().by_interest.is_empty() && watches.0.counts.lock().by_user.is_empty());
    }

    #[test]
    fn ending_a_watch_leaves_others_open() {
        let watches = Watches::default();
        let user = User::anonymous();
        let open = |namespace, name| watches.open(&user, &target(Some(namespace), name)).unwrap();
        let (one, other, again) = (open("a", Some("p")), open("a", Some("q")), open("a", Some("p")));
        let (all, elsewhere) = (open("a", None), open("b", Some("p")));
        let notified_watches =
            |namespace, name| watches.notified_watches(&target(Some(namespace), Some(name)));
        drop(one);
        assert_eq!(
            [notified_watches("a", "p"), notified_watches("a", "q"), notified_watches("b", "p")],
            [2, 2, 1]
        );
        drop((all, elsewhere));
        assert_eq!(
            [notified_watches("a", "p"), notified_watches("a", "q"), notified_watches("b", "p")],
            [1, 1, 0]
        );
        drop((other, again));
        assert!(watches.0.counts.lock().by_interest.is_empty());
    }

    #[test]
    fn watches_are_limited_per_user_and_per_server() {
        let watches = Watches::new(WatchLimits { total: 3, per_user: 2 });
        let users = ["a", "b"].map(|name| User::authenticated(name, "", vec![]));
        let open = |user| watches.open(&users[user], &target(None, None));
        let (_one, two) = (open(0).unwrap(), open(0).unwrap());
        assert_eq!(open(0).err().map(|status| status.code), Some(429));
        let _three = open(1).unwrap();
        assert_eq!(open(1).err().map(|status| status.code), Some(429));
        drop(two);
        assert!(open(1).is_ok());
    }
}
