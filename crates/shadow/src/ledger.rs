//! Matches intended writes with observed ones.
//!
//! ```text
//!  intention ─► pending ─┬─ the cluster shows it ───────────────────► matched
//!                        ├─ another one takes its place ────────────► superseded
//!                        └─ its window ends ─► read the live object ─┬► matched, superseded
//!                                                                    └► difference
//! ```
//!
//! Invariants:
//! - An intention is counted once when it is made and once when it is decided.
//! - The same write, intended again, is the same intention, even after it has been reported.
//! - Everything is bounded: see the constants.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use setpoint::Instant;
use setpoint::metrics::Metrics;

use crate::family::Family;
use crate::fields::Comparison;
use crate::findings::{self, Findings};
use crate::intention::{Expected, Input, Intention, Verb, Verdict};
use crate::observed::Observed;
use crate::report::Counts;
use crate::target::{ObjectId, Resource, Target};

/// The maximum number of undecided intentions. At about 4 KB each, mostly the body of a pod, that is 40 MB.
const MAX_PENDING: usize = 10_000;
/// The maximum number of recently written objects. At 200 bytes each that is 10 MB.
const MAX_TOUCHED: usize = 50_000;
/// How long after an intention an event may arrive that it should have been based on.
const RECENT: Duration = Duration::from_secs(2);
/// For how many windows a reported intention is remembered, so that it is not reported again.
const REMEMBERED: u32 = 10;

pub(crate) struct Ledger {
    pub(crate) comparison: Comparison,
    window: Duration,
    metrics: Metrics,
    /// Intentions for named objects.
    objects: BTreeMap<ObjectId, Vec<Intention>>,
    /// Intentions for objects with generated names, oldest first.
    families: BTreeMap<Family, VecDeque<Intention>>,
    /// The pending objects by uid. Pruned together with expired intentions.
    subjects: BTreeMap<String, ObjectId>,
    pending: usize,
    /// When a write to each object was last intended.
    touched: BTreeMap<ObjectId, Instant>,
    pub(crate) observed: Observed,
    counts: BTreeMap<Arc<str>, Counts>,
    pub(crate) missing: u64,
    pub(crate) accepted: u64,
    pub(crate) findings: Findings,
}

/// An intention whose window has ended.
#[derive(Debug)]
pub(crate) enum ExpiredWrite {
    Named(ObjectId, Intention),
    Generated(Family, Intention),
}

/// The result of an intention, as a metric label.
const MATCHED: &str = "matched";
const SUPERSEDED: &str = "superseded";
const DIFFERENCE: &str = "difference";

impl Ledger {
    pub(crate) fn new(window: Duration, metrics: Metrics) -> Self {
        Self {
            comparison: Comparison { tolerance: window },
            window,
            metrics,
            objects: BTreeMap::new(),
            families: BTreeMap::new(),
            subjects: BTreeMap::new(),
            pending: 0,
            touched: BTreeMap::new(),
            observed: Observed::default(),
            counts: BTreeMap::new(),
            missing: 0,
            accepted: 0,
            findings: Findings::default(),
        }
    }

    /// Records a write to a named object.
    pub(crate) fn intend(&mut self, id: ObjectId, intention: Intention) {
        self.touch(&id, intention.at);
        let known = self.objects.entry(id.clone()).or_default();
        if let Some(same) = known.iter_mut().find(|one| one.replaces(&intention) && one.repeats(&intention)) {
            same.count += 1;
            same.challenged = None;
            same.last = intention.at;
            if let Some(number) = same.reported {
                same.at = intention.at;
                self.findings.repeat(number, intention.time);
            }
            return;
        }
        let (old, kept): (Vec<_>, Vec<_>) =
            std::mem::take(known).into_iter().partition(|one| intention.replaces(one));
        *known = kept;
        old.iter().for_each(|one| self.forget(one));
        self.counted(&intention.controller).intended += 1;
        if self.pending >= MAX_PENDING {
            self.counted(&intention.controller).dropped += 1;
            self.expire(&id);
            return;
        }
        self.pending += 1;
        self.keep(id, intention);
    }

    fn keep(&mut self, id: ObjectId, intention: Intention) {
        if let Expected::Changed { base, .. } = &intention.expected {
            self.subjects.insert(base.uid.clone(), id.clone());
        }
        self.objects.entry(id).or_default().push(intention);
    }

    /// The controller of this object will reconcile it again. If it still wants its last intention, it will repeat it.
    /// Earlier intentions were not based on stale caches.
    pub(crate) fn challenge(&mut self, uid: &str, now: Instant) {
        let known = self.subjects.get(uid).and_then(|id| self.objects.get_mut(id));
        for one in known.into_iter().flatten() {
            let is_recent = now.saturating_duration_since(one.last) <= RECENT;
            if is_recent && matches!(one.expected, Expected::Changed { .. }) {
                one.challenged.get_or_insert(now);
            }
        }
    }

    /// Postpones the decision on an expired intention.
    pub(crate) fn postpone(&mut self, due: ExpiredWrite, by: Duration) {
        let ExpiredWrite::Named(id, intention) = due else { return };
        let again =
            self.objects.get(&id).is_some_and(|known| known.iter().any(|one| one.replaces(&intention)));
        match again {
            true => self.decide(&intention.controller, intention.verb, SUPERSEDED),
            false => {
                self.pending += 1;
                self.keep(id, Intention { at: intention.at + by, ..intention });
            }
        }
    }

    /// Records the creation of an object with a generated name.
    pub(crate) fn intend_generated(&mut self, family: Family, intention: Intention) {
        let Expected::Created(wanted) = &intention.expected else { return };
        if self.is_repeated(&family, &intention) {
            return;
        }
        self.counted(&intention.controller).intended += 1;
        if self.observed.claim(&family, wanted, self.comparison) {
            self.decide(&intention.controller, intention.verb, MATCHED);
            return;
        }
        if self.pending >= MAX_PENDING {
            self.counted(&intention.controller).dropped += 1;
            return;
        }
        self.pending += 1;
        self.families.entry(family).or_default().push_back(intention);
    }

    /// Whether the object was already to be created. A new intention replaces the old one, except for pods, of which
    /// there can be many equal ones.
    fn is_repeated(&mut self, family: &Family, intention: &Intention) -> bool {
        let Some(waiting) = self.families.get_mut(family).filter(|_| family.is_unique()) else {
            return false;
        };
        if let Some(same) = waiting.iter_mut().find(|one| one.repeats(intention)) {
            same.count += 1;
            same.last = intention.at;
            if let Some(number) = same.reported {
                same.at = intention.at;
                self.findings.repeat(number, intention.time);
            }
            return true;
        }
        let is_old = |one: &Intention| one.controller == intention.controller;
        let (old, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(waiting).into_iter().partition(is_old);
        *waiting = kept;
        old.iter().for_each(|one| self.forget(one));
        false
    }

    /// Returns the body of the last creation in a family, to be shared with an equal one.
    pub(crate) fn last_body(&self, family: &Family) -> Option<Arc<Value>> {
        match &self.families.get(family)?.back()?.expected {
            Expected::Created(body) => Some(body.clone()),
            _ => None,
        }
    }

    /// Records a write that is decided immediately.
    pub(crate) fn intend_decided(
        &mut self,
        id: Option<&ObjectId>,
        controller: &Arc<str>,
        verb: Verb,
        verdict: &Verdict,
        now: Instant,
    ) {
        if let Some(id) = id {
            self.touch(id, now);
        }
        self.counted(controller).intended += 1;
        let result = if *verdict == Verdict::Matched { MATCHED } else { SUPERSEDED };
        self.decide(controller, verb, result);
    }

    pub(crate) fn count_event(&mut self, controller: &Arc<str>) {
        self.counted(controller).events += 1;
    }

    fn touch(&mut self, id: &ObjectId, now: Instant) {
        if self.touched.len() < MAX_TOUCHED || self.touched.contains_key(id) {
            self.touched.insert(id.clone(), now);
        }
        self.observed.explain(id);
    }

    /// Whether a write to the object was intended within the window.
    pub(crate) fn is_touched(&self, id: &ObjectId, now: Instant) -> bool {
        self.touched.get(id).is_some_and(|at| now.saturating_duration_since(*at) <= self.window)
    }

    /// Whether anything is pending for an object, so that it has to be decoded.
    pub(crate) fn awaits(&self, id: &ObjectId) -> bool {
        self.objects.contains_key(id)
    }

    /// Records that an object of this owner is being deleted, unintended. It may have been deleted instead of another
    /// one.
    pub(crate) fn observe_deletion(&mut self, id: &ObjectId, owner: &str, now: Instant) {
        let is_gone = |one: &Intention| matches!(one.expected, Expected::Gone { .. });
        if !self.objects.get(id).is_some_and(|known| known.iter().any(is_gone)) {
            self.observed.deleted(owner, id, now);
        }
    }

    /// Records the current state of an object.
    pub(crate) fn observe(&mut self, id: &ObjectId, live: &Value) {
        let comparison = self.comparison;
        self.shown(id, |one| one.is_matched_by(live, comparison));
    }

    /// The same for an object read at one target.
    pub(crate) fn read(&mut self, id: &ObjectId, target: &Target, live: &Value) {
        let comparison = self.comparison;
        self.shown(id, |one| one.target == *target && one.is_matched_by(live, comparison));
    }

    /// Records that an object is gone.
    pub(crate) fn observe_gone(&mut self, id: &ObjectId) {
        self.shown(id, Intention::is_matched_by_absence);
    }

    fn shown(&mut self, id: &ObjectId, is_shown: impl Fn(&Intention) -> bool) {
        let Some(known) = self.objects.get_mut(id) else { return };
        let (shown, kept): (Vec<_>, Vec<_>) = std::mem::take(known).into_iter().partition(is_shown);
        *known = kept;
        self.expire(id);
        for one in shown {
            self.pending = self.pending.saturating_sub(1);
            match one.reported {
                Some(number) => self.findings.resolve(number),
                None => self.decide(&one.controller, one.verb, MATCHED),
            }
        }
    }

    /// Records a new object with a generated name. Returns whether it was expected.
    pub(crate) fn observe_created(&mut self, family: &Family, live: &Value) -> bool {
        let comparison = self.comparison;
        let Some(waiting) = self.families.get_mut(family) else { return false };
        let place = waiting.iter().position(|one| one.is_matched_by(live, comparison));
        let Some(one) = place.and_then(|place| waiting.remove(place)) else { return false };
        if waiting.is_empty() {
            self.families.remove(family);
        }
        self.pending = self.pending.saturating_sub(1);
        match one.reported {
            Some(number) => self.findings.resolve(number),
            None => self.decide(&one.controller, one.verb, MATCHED),
        }
        true
    }

    /// Removes up to `most` expired intentions.
    pub(crate) fn due(&mut self, now: Instant, most: usize) -> Vec<ExpiredWrite> {
        let (window, remembered) = (self.window, self.window.saturating_mul(REMEMBERED));
        let is_due = |one: &Intention| {
            let limit = if one.reported.is_some() { remembered } else { window };
            now.saturating_duration_since(one.at) >= limit
        };
        let mut due = Vec::new();
        let mut emptied = Vec::new();
        for (id, known) in &mut self.objects {
            if due.len() >= most {
                break;
            }
            let (over, kept): (Vec<_>, Vec<_>) = std::mem::take(known).into_iter().partition(&is_due);
            *known = kept;
            if known.is_empty() {
                emptied.push(id.clone());
            }
            due.extend(over.into_iter().map(|one| ExpiredWrite::Named(id.clone(), one)));
        }
        emptied.iter().for_each(|id| self.expire(id));
        for (family, waiting) in &mut self.families {
            while due.len() < most && waiting.front().is_some_and(is_due) {
                due.extend(waiting.pop_front().map(|one| ExpiredWrite::Generated(family.clone(), one)));
            }
        }
        self.families.retain(|_, waiting| !waiting.is_empty());
        self.pending = self.pending.saturating_sub(due.len());
        self.touched.retain(|_, at| now.saturating_duration_since(*at) <= window);
        self.subjects.retain(|_, id| self.objects.contains_key(id));
        due.retain(|(ExpiredWrite::Named(_, one) | ExpiredWrite::Generated(_, one))| one.reported.is_none());
        due
    }

    /// Returns everything that is pending, for the final check. It stays pending.
    pub(crate) fn undecided(&self) -> Vec<ObjectId> {
        let is_open = |known: &&Vec<Intention>| known.iter().any(|one| one.reported.is_none());
        self.objects.iter().filter(|(_, known)| is_open(known)).map(|(id, _)| id.clone()).collect()
    }

    /// Returns the pending target of an object.
    pub(crate) fn targets(&self, id: &ObjectId) -> Vec<Target> {
        self.objects.get(id).into_iter().flatten().map(|one| one.target.clone()).collect()
    }

    /// Whether the input of an intention has changed since.
    pub(crate) fn has_new_input(&self, input: Option<&Input>) -> bool {
        input.is_some_and(|input| !self.observed.is_unchanged(input))
    }

    /// Records the result of an intention whose window has ended.
    pub(crate) fn conclude(&mut self, due: ExpiredWrite, verdict: Verdict) {
        let (intention, generated) = match &due {
            ExpiredWrite::Named(_, intention) => (intention, None),
            ExpiredWrite::Generated(family, intention) => (intention, Some(family)),
        };
        let result = match &verdict {
            Verdict::Matched => MATCHED,
            Verdict::Superseded => SUPERSEDED,
            Verdict::Differs(_) | Verdict::NotDone => DIFFERENCE,
        };
        self.decide(&intention.controller.clone(), intention.verb, result);
        let Some(difference) = findings::difference(intention, generated, &verdict) else { return };
        let number = self.findings.list(difference);
        match due {
            ExpiredWrite::Named(id, intention) => {
                self.remember(id, Intention { reported: Some(number), ..intention })
            }
            ExpiredWrite::Generated(family, intention)
                if family.is_unique() && self.pending < MAX_PENDING =>
            {
                self.pending += 1;
                let reported = Intention { reported: Some(number), ..intention };
                self.families.entry(family).or_default().push_back(reported);
            }
            ExpiredWrite::Generated(..) => {}
        }
    }

    /// Keeps a reported intention, so that it is recognized when it is made again.
    fn remember(&mut self, id: ObjectId, intention: Intention) {
        let known = self.objects.entry(id.clone()).or_default();
        match known.iter_mut().find(|one| one.replaces(&intention)) {
            Some(same) if same.repeats(&intention) => {
                let controller = same.controller.clone();
                same.reported = intention.reported;
                // It was made again in the meantime: one difference, not two.
                let counts = self.counts.entry(controller).or_default();
                counts.intended = counts.intended.saturating_sub(1);
            }
            Some(_) => {}
            None if self.pending < MAX_PENDING => {
                self.pending += 1;
                known.push(intention);
            }
            None => self.expire(&id),
        }
    }

    /// Records that another intention has replaced one.
    fn forget(&mut self, intention: &Intention) {
        self.pending = self.pending.saturating_sub(1);
        if intention.reported.is_none() {
            self.decide(&intention.controller, intention.verb, SUPERSEDED);
        }
    }

    fn expire(&mut self, id: &ObjectId) {
        if self.objects.get(id).is_some_and(Vec::is_empty) {
            self.objects.remove(id);
        }
    }

    fn decide(&mut self, controller: &Arc<str>, verb: Verb, result: &'static str) {
        let counts = self.counted(controller);
        match result {
            MATCHED => counts.matched += 1,
            SUPERSEDED => counts.superseded += 1,
            _ => counts.differences += 1,
        }
        self.count(controller, verb.as_str(), result);
    }

    pub(crate) fn count(&self, controller: &str, verb: &str, result: &str) {
        let help = "Writes intended in shadow mode, by result";
        let labels = [("controller", controller), ("verb", verb), ("result", result)];
        self.metrics.count("setpoint_shadow_intentions", help, &labels, 1);
    }

    fn counted(&mut self, controller: &Arc<str>) -> &mut Counts {
        self.counts.entry(controller.clone()).or_default()
    }

    /// Returns the counts of each controller.
    pub(crate) fn counts(&self) -> BTreeMap<String, Counts> {
        let with_pending = |(name, counts): (&Arc<str>, &Counts)| {
            let Counts { intended, matched, superseded, differences, dropped, .. } = *counts;
            let pending = intended.saturating_sub(matched + superseded + differences + dropped);
            (name.to_string(), Counts { pending, ..*counts })
        };
        self.counts.iter().map(with_pending).collect()
    }

    /// Returns the number of stored intentions.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    pub(crate) fn window(&self) -> Duration {
        self.window
    }
}

/// Whether objects of this kind are never compared.
pub(crate) fn is_exempt(resource: &Resource) -> bool {
    resource.name == "events" || *resource == Resource::new("coordination.k8s.io", "leases")
}
