//! A model cluster: objects with finalizers behind an API, a change log per kind that monitors follow at their own
//! pace, and workers that act on earlier observations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use setpoint::client::PropagationPolicy;
use setpoint::{Kind, Metadata, Object, OwnerRef};

use crate::garbage_collector::graph::{FOREGROUND, Graph, Node, ORPHAN, Work, is_deleted_with};
use crate::garbage_collector::identity::Identity;
use crate::garbage_collector::observe::{Observed, Owned, observe};
use crate::garbage_collector::plan::{self, OwnerState, Plan, plan};
use crate::garbage_collector::uid::Uid;

pub(super) fn kinds() -> [Kind; 3] {
    [
        Kind::new("", "v1", "Box", "boxes", true),
        Kind::new("example.com", "v1", "Lid", "lids", true),
        Kind::new("", "v1", "Shelf", "shelves", false),
    ]
}

/// A finalizer of another controller.
const FOREIGN: &str = "example.com/hold";

#[derive(Clone)]
enum Change {
    Seen(Object),
    Gone(Object),
}

/// An item that a worker has observed and not yet acted on.
struct Attempt {
    object: Object,
    plan: Plan,
}

pub(super) struct Model {
    kinds: [Kind; 3],
    unserved: BTreeSet<Kind>,
    objects: BTreeMap<Uid, (usize, Object)>,
    /// Owners that were once in foreground deletion. Their dependents may be deleted from then on.
    doomed: BTreeSet<Uid>,
    revision: u64,
    log: [Vec<Change>; 3],
    delivered: [usize; 3],
    graph: Graph,
    delete: BTreeSet<Uid>,
    later: BTreeSet<Uid>,
    orphan: BTreeSet<Uid>,
    attempts: Vec<Attempt>,
    pub(super) misplaced: usize,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            kinds: kinds(),
            unserved: BTreeSet::new(),
            objects: BTreeMap::new(),
            doomed: BTreeSet::new(),
            revision: 0,
            log: Default::default(),
            delivered: [0; 3],
            graph: Graph::default(),
            delete: BTreeSet::new(),
            later: BTreeSet::new(),
            orphan: BTreeSet::new(),
            attempts: Vec::new(),
            misplaced: 0,
        }
    }

    // User actions.

    /// Creates an object with these owners.
    pub(super) fn create(&mut self, kind: usize, namespace: &str, held: bool, owners: Vec<OwnerRef>) -> Uid {
        self.revision += 1;
        let name = format!("n{}", self.revision);
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.revision);
        let meta = Metadata {
            name: name.as_str().into(),
            namespace: self.kinds[kind].namespaced().then(|| namespace.into()),
            uid: uid.as_str().into(),
            finalizers: if held { [FOREIGN.into()].into() } else { Default::default() },
            owner_references: owners.into(),
            ..Metadata::default()
        };
        self.store(kind, meta);
        Uid::from(&*uid)
    }

    pub(super) fn uids(&self) -> Vec<Uid> {
        self.objects.keys().cloned().collect()
    }

    pub(super) fn reference(&self, uid: &Uid, block: bool) -> Option<OwnerRef> {
        let (kind, object) = self.objects.get(uid)?;
        Some(OwnerRef {
            api_version: self.kinds[*kind].api_version().into(),
            kind: self.kinds[*kind].kind().into(),
            name: object.key().name().into(),
            uid: object.meta().uid.clone(),
            controller: None,
            block_owner_deletion: block.then_some(true),
        })
    }

    pub(super) fn user_deletes(&mut self, uid: &Uid, propagation: PropagationPolicy) {
        self.delete_object(uid, propagation);
    }

    pub(super) fn set_owners(&mut self, uid: &Uid, owners: Vec<OwnerRef>) {
        if self.objects.get(uid).is_some_and(|(_, object)| !object.meta().is_being_deleted()) {
            self.update(uid, |meta| meta.owner_references = owners.into());
        }
    }

    pub(super) fn owners(&self, uid: &Uid) -> Vec<OwnerRef> {
        self.objects.get(uid).map(|(_, object)| object.meta().owner_references.to_vec()).unwrap_or_default()
    }

    pub(super) fn release_held(&mut self) {
        for uid in self.uids() {
            self.remove_finalizer(&uid, FOREIGN);
        }
    }

    // The API server.

    fn store(&mut self, kind: usize, mut meta: Metadata) {
        self.revision += 1;
        meta.resource_version = self.revision.to_string().into();
        let uid = Uid::from(&*meta.uid);
        if is_deleted_with(&meta, FOREGROUND) {
            self.doomed.insert(uid.clone());
        }
        let object = Object::with_metadata(meta, Bytes::new());
        self.log[kind].push(Change::Seen(object.clone()));
        self.objects.insert(uid, (kind, object));
    }

    fn update(&mut self, uid: &Uid, change: impl FnOnce(&mut Metadata)) {
        let Some((kind, object)) = self.objects.get(uid).cloned() else { return };
        let mut meta = object.meta().clone();
        change(&mut meta);
        if meta == *object.meta() {
            return;
        }
        if meta.is_being_deleted() && meta.finalizers.is_empty() {
            self.objects.remove(uid);
            self.log[kind].push(Change::Gone(Object::with_metadata(meta, Bytes::new())));
        } else {
            self.store(kind, meta);
        }
    }

    fn delete_object(&mut self, uid: &Uid, propagation: PropagationPolicy) {
        self.update(uid, |meta| {
            meta.deletion_timestamp = meta.deletion_timestamp.or(Some(jiff::Timestamp::UNIX_EPOCH));
            let mut finalizers: Vec<Box<str>> = meta.finalizers.to_vec();
            finalizers.retain(|finalizer| &**finalizer != ORPHAN && &**finalizer != FOREGROUND);
            match propagation {
                PropagationPolicy::Background => {}
                PropagationPolicy::Foreground => finalizers.push(FOREGROUND.into()),
                PropagationPolicy::Orphan => finalizers.push(ORPHAN.into()),
            }
            meta.finalizers = finalizers.into();
        });
    }

    fn remove_finalizer(&mut self, uid: &Uid, finalizer: &str) {
        self.update(uid, |meta| {
            let rest: Vec<Box<str>> =
                meta.finalizers.iter().filter(|own| &***own != finalizer).cloned().collect();
            meta.finalizers = rest.into();
        });
    }

    fn drop_owners(&mut self, uid: &Uid, dropped: &[Box<str>]) {
        self.update(uid, |meta| {
            let stays = |owner: &&OwnerRef| !dropped.contains(&owner.uid);
            meta.owner_references = meta.owner_references.iter().filter(stays).cloned().collect();
        });
    }

    /// Looks up the object at these coordinates. The error says why that is impossible.
    fn look_up(&self, identity: &Identity) -> Result<Option<&Object>, Unclear> {
        let is_referenced = |kind: &Kind| kind.is_named(&identity.api_version, &identity.kind);
        let served = self.kinds.iter().position(|kind| is_referenced(kind) && !self.unserved.contains(kind));
        let served = served.ok_or(Unclear::NotServed)?;
        let namespace = match self.kinds[served].namespaced() {
            true => Some(identity.namespace.as_deref().ok_or(Unclear::NoNamespace)?),
            false => None,
        };
        let is_there = |(kind, object): &&(usize, Object)| {
            *kind == served && object.key().name() == &*identity.name && object.key().namespace() == namespace
        };
        Ok(self.objects.values().find(is_there).map(|(_, object)| object))
    }

    /// Returns the true states of an object's owners. `None` if one cannot be determined.
    fn owner_states(&self, object: &Object) -> Vec<Option<OwnerState>> {
        let of = |reference: &OwnerRef| {
            let found = self.look_up(&Identity::of_owner(reference, object.key().namespace()));
            found.ok().map(|found| plan::owner_state(reference, found))
        };
        object.meta().owner_references.iter().map(of).collect()
    }

    // Monitors.

    pub(super) fn deliver(&mut self, kind: usize) -> bool {
        let Some(change) = self.log[kind].get(self.delivered[kind]).cloned() else { return false };
        self.delivered[kind] += 1;
        let work = match &change {
            Change::Seen(object) => self.graph.observed(&self.kinds[kind], object),
            Change::Gone(last) => self.graph.removed(&self.kinds[kind], last),
        };
        self.take_on(work);
        true
    }

    fn take_on(&mut self, work: Work) {
        self.delete.extend(work.delete);
        self.later.extend(work.delete_later);
        self.orphan.extend(work.orphan);
        self.misplaced += work.misplaced.len();
    }

    /// Stops serving and monitoring a kind.
    pub(super) fn stops_serving(&mut self, kind: &Kind) {
        self.unserved.insert(kind.clone());
        let work = self.graph.forget_kind(kind);
        self.take_on(work);
    }

    // Workers.

    /// Observes the `nth` item of the queue. Acting on it may come later.
    pub(super) fn attempt(&mut self, nth: usize) {
        let Some(uid) = self.delete.iter().nth(nth % self.delete.len().max(1)).cloned() else { return };
        self.delete.remove(&uid);
        match observe(&mut self.graph, &uid) {
            Observed::Done => {}
            Observed::Virtual(identity) => match self.look_up(&identity) {
                Err(Unclear::NotServed) => _ = self.later.insert(uid),
                Err(Unclear::NoNamespace) => {}
                Ok(Some(found)) if Uid::from(&*found.meta().uid) == uid => _ = self.later.insert(uid),
                Ok(_) => {
                    let work = self.graph.found_absent(&identity);
                    self.take_on(work);
                }
            },
            Observed::Waiting(waiting) if waiting.blocked => self.delete.extend(waiting.untouched),
            Observed::Waiting(_) => self.remove_finalizer(&uid, FOREGROUND),
            Observed::Owned(owned) => self.classify(&uid, owned),
        }
    }

    fn classify(&mut self, uid: &Uid, owned: Owned) {
        let Owned { object, owner_states, dependents, .. } = owned;
        let mut known = Vec::new();
        for (reference, owner_state) in object.meta().owner_references.iter().zip(owner_states) {
            let identity = Identity::of_owner(reference, object.key().namespace());
            match owner_state
                .map_or_else(|| self.look_up(&identity).map(|found| plan::owner_state(reference, found)), Ok)
            {
                Ok(owner_state) => known.push(owner_state),
                Err(Unclear::NotServed) => {
                    self.later.insert(uid.clone());
                    return;
                }
                Err(Unclear::NoNamespace) => return,
            }
        }
        let plan = plan(object.meta(), &known, dependents);
        self.attempts.push(Attempt { object, plan });
    }

    /// Acts on the `nth` observed item.
    pub(super) fn act(&mut self, nth: usize) {
        if self.attempts.is_empty() {
            return;
        }
        let Attempt { object, plan } = self.attempts.swap_remove(nth % self.attempts.len());
        let uid = Uid::from(&*object.meta().uid);
        let Some((_, live)) = self.objects.get(&uid) else { return };
        match plan {
            Plan::Keep => {}
            Plan::DropOwners(positions) => {
                let owners = &object.meta().owner_references;
                let dropped: Vec<Box<str>> =
                    positions.iter().map(|&position| owners[position].uid.clone()).collect();
                self.drop_owners(&uid, &dropped);
            }
            // The precondition: the object has not changed since the decision.
            Plan::Delete { .. } if live.meta().owner_references != object.meta().owner_references => {
                self.later.insert(uid);
            }
            Plan::Delete { propagation, unblock_owners } => {
                self.assert_may_go(live);
                if unblock_owners {
                    self.update(&uid, |meta| {
                        Arc::make_mut(&mut meta.owner_references)
                            .iter_mut()
                            .for_each(|owner| owner.block_owner_deletion = Some(false))
                    });
                }
                self.delete_object(&uid, propagation);
            }
        }
    }

    pub(super) fn release(&mut self) {
        let Some(uid) = self.orphan.pop_first() else { return };
        let dependents: Vec<Uid> =
            self.graph.dependents(&uid).map(|(dependent, ..)| dependent.clone()).collect();
        for dependent in dependents {
            self.drop_owners(&dependent, &[uid.to_string().into()]);
        }
        self.remove_finalizer(&uid, ORPHAN);
    }

    /// Delivers everything and runs all workers until nothing changes any more.
    pub(super) fn settle(&mut self) {
        // An owner that is named in several ways takes one round per name; none has this many.
        let mut quiet_rounds = 0;
        for _ in 0..1000 {
            let before = self.revision;
            self.work_once();
            quiet_rounds = if self.revision == before { quiet_rounds + 1 } else { 0 };
            if quiet_rounds == 10 {
                return;
            }
        }
        panic!("the collector does not come to rest");
    }

    fn work_once(&mut self) {
        while (0..3).any(|kind| self.deliver(kind)) {}
        while !self.orphan.is_empty() {
            self.release();
        }
        while !self.delete.is_empty() {
            self.attempt(0);
        }
        while !self.attempts.is_empty() {
            self.act(0);
        }
        self.delete.append(&mut self.later);
    }

    // Assertions.

    fn assert_may_go(&self, object: &Object) {
        let owners = &object.meta().owner_references;
        let owner_states = self.owner_states(object);
        let lost = |(owner, owner_state): (&OwnerRef, &Option<OwnerState>)| {
            *owner_state == Some(OwnerState::Dangling) || self.doomed.contains(&Uid::from(&*owner.uid))
        };
        let may_go = !owners.is_empty() && owners.iter().zip(&owner_states).all(lost);
        assert!(may_go, "{object:?} is deleted: {owner_states:?}");
    }

    pub(super) fn assert_settled(&self) {
        for (uid, (kind, object)) in &self.objects {
            let meta = object.meta();
            let Some(Node::Observed { kind: seen, object: node }) = self.graph.node(uid) else {
                panic!("{object:?} is not in the graph");
            };
            assert!(*seen == self.kinds[*kind] && node.same_version(object));
            assert!(!is_deleted_with(meta, ORPHAN), "{object:?} still waits to release its dependents");
            if is_deleted_with(meta, FOREGROUND) {
                let mut blocking = self.graph.blocking_dependents(uid);
                assert!(blocking.any(|(_, dependent)| self.is_stuck(dependent)), "{object:?} waits in vain");
            } else if !meta.is_being_deleted() {
                self.assert_has_its_owners(object);
            }
        }
        for (owner, dependent) in self.every_edge() {
            assert!(self.graph.dependents(&owner).any(|(uid, ..)| *uid == dependent));
        }
    }

    /// Whether the collector can do nothing about an object: it is being deleted, or has an owner that cannot be looked
    /// up.
    fn is_stuck(&self, object: &Object) -> bool {
        object.meta().is_being_deleted() || self.owner_states(object).iter().any(Option::is_none)
    }

    /// A live object has no missing owner, unless one of its owners cannot be looked up.
    fn assert_has_its_owners(&self, object: &Object) {
        let owner_states = self.owner_states(object);
        let clear = owner_states.iter().all(Option::is_some);
        let solid = owner_states.iter().all(|owner_state| *owner_state == Some(OwnerState::Solid));
        assert!(!clear || solid, "{object:?} is kept: {owner_states:?}");
    }

    fn every_edge(&self) -> Vec<(Uid, Uid)> {
        let edges = |(uid, (_, object)): (&Uid, &(usize, Object))| {
            let owners: Vec<_> =
                object.meta().owner_references.iter().map(|owner| Uid::from(&*owner.uid)).collect();
            owners.into_iter().map(|owner| (owner, uid.clone())).collect::<Vec<_>>()
        };
        self.objects.iter().flat_map(edges).collect()
    }

    pub(super) fn has(&self, uid: &Uid) -> bool {
        self.objects.contains_key(uid)
    }
}

/// Why an owner cannot be looked up.
enum Unclear {
    NotServed,
    NoNamespace,
}
