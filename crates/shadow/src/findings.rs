//! The differences found so far. A repeated difference is counted, not listed again.

use std::collections::VecDeque;

use jiff::Timestamp;

use crate::family::Family;
use crate::fields::Mismatch;
use crate::intention::{Intention, Verb, Verdict};
use crate::report::{Difference, FieldDifference, Finding, shown};
use crate::target::Target;

/// The maximum number of listed differences. The others are only counted.
const MAX_LISTED: usize = 1_000;

#[derive(Default)]
pub(crate) struct Findings {
    /// Oldest first.
    pub(crate) listed: VecDeque<Difference>,
    pub(crate) unlisted: u64,
    last_id: u64,
}

impl Findings {
    /// Records a difference. It is logged the first time and counted after that.
    pub(crate) fn list(&mut self, difference: Difference) -> u64 {
        let same = |one: &&mut Difference| {
            let key = |one: &Difference| {
                (one.finding, one.controller.clone(), one.verb, one.object(), one.message.clone())
            };
            !one.resolved && key(one) == key(&difference) && paths(one) == paths(&difference)
        };
        if let Some(known) = self.listed.iter_mut().find(same) {
            known.count += difference.count;
            known.last = difference.last;
            return known.id;
        }
        let Difference { controller, verb, message, .. } = &difference;
        let (object, fields) = (difference.object(), paths(&difference).join(", "));
        tracing::warn!(controller, verb, object, fields, "shadow: {message}");
        self.last_id += 1;
        if self.listed.len() >= MAX_LISTED {
            self.unlisted += 1;
        } else {
            self.listed.push_back(Difference { id: self.last_id, ..difference });
        }
        self.last_id
    }

    pub(crate) fn repeat(&mut self, number: u64, time: Timestamp) {
        if let Some(known) = self.listed.iter_mut().find(|one| one.id == number) {
            known.count += 1;
            known.last = time;
        }
    }

    pub(crate) fn resolve(&mut self, number: u64) {
        if let Some(known) = self.listed.iter_mut().find(|one| one.id == number) {
            known.resolved = true;
            let (controller, object) = (&known.controller, known.object());
            tracing::info!(controller, object, "shadow: resolved");
        }
    }
}

/// Returns the difference that results from an intention, if there is one.
pub(crate) fn difference(
    intention: &Intention,
    generated: Option<&Family>,
    verdict: &Verdict,
) -> Option<Difference> {
    let (fields, message) = match verdict {
        Verdict::Matched | Verdict::Superseded => return None,
        Verdict::Differs(found) => (&found[..], differs(found)),
        Verdict::NotDone => (&[][..], not_done(intention.verb)),
    };
    let Intention { controller, verb, target, time, count, .. } = intention;
    Some(Difference {
        finding: Finding::Difference,
        controller: controller.to_string(),
        verb: verb.as_str(),
        resource: target.resource.to_string(),
        subresource: target.subresource.clone(),
        namespace: target.namespace.clone(),
        name: name(target, generated),
        message,
        fields: shown(target, fields),
        first: *time,
        last: *time,
        count: *count,
        resolved: false,
        id: 0,
    })
}

fn paths(difference: &Difference) -> Vec<&str> {
    difference.fields.iter().map(|FieldDifference { path, .. }| path.as_str()).collect()
}

fn name(target: &Target, generated: Option<&Family>) -> String {
    match (generated, &target.name) {
        (Some(family), _) => format!("{}*", family.prefix),
        (None, Some(name)) => name.clone(),
        (None, None) => "*".to_owned(),
    }
}

fn differs(found: &[Mismatch]) -> String {
    let first = found.first().map(|one| one.path.to_string()).unwrap_or_default();
    match found.len() {
        1 => format!("{first} differs in the cluster"),
        many => format!("{first} and {} more field(s) differ in the cluster", many - 1),
    }
}

fn not_done(verb: Verb) -> String {
    let what = match verb {
        Verb::Create => "the object was not created",
        Verb::Delete | Verb::Evict => "the object was not deleted",
        Verb::DeleteCollection => "not all objects were deleted",
        Verb::Update | Verb::Patch => "the object was not changed",
    };
    what.to_owned()
}
