//! Estimates the width of a request: the number of seats it takes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use setpoint_clock::Instant;
use setpoint_flow::{ListWork, Work};
use setpoint_store::{ListOptions, Store};

use super::PriorityAndFairness;
use super::config::ActiveSchema;
use crate::kind::Verb;
use crate::query::Query;
use crate::registry::Served;
use crate::request::ResourceTarget;
use crate::server::Server;

/// How long to cache the average object size: v1.34 refreshes it this often.
const SIZE_LASTS: Duration = Duration::from_secs(60);
/// Number of objects to sample for the average size.
const SAMPLE: usize = 16;

/// Average object sizes by stored resource: one entry for each listed kind.
#[derive(Default)]
pub(super) struct Sizes(BTreeMap<String, (Instant, u64)>);

/// Returns the seats of a resource request; other requests take one.
pub(super) fn of(
    server: &Server,
    fair: &PriorityAndFairness,
    schema: &ActiveSchema,
    target: Option<&ResourceTarget>,
    query: &Query<'_>,
) -> Work {
    let Some((target, verb)) = target.and_then(|target| Some((target, target.verb?))) else {
        return Work::ONE_SEAT;
    };
    let limit = schema.level.max_seats;
    match verb {
        Verb::List => of_list(server, fair, target, query, false).estimate(limit),
        // A watch takes seats only for its initial events.
        Verb::Watch if query.flag("sendInitialEvents") == Some(true) => {
            of_list(server, fair, target, query, true).estimate(limit)
        }
        Verb::Watch | Verb::Get | Verb::DeleteCollection => Work::ONE_SEAT,
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => {
            // A token request notifies no watches.
            if target.resource == "serviceaccounts" && target.subresource.as_deref() == Some("token") {
                return Work::ONE_SEAT;
            }
            let watchers = server.watches.notified_watches(target);
            schema.stats.watchers.observe(watchers);
            Work::mutating(watchers, limit)
        }
    }
}

fn of_list(
    server: &Server,
    fair: &PriorityAndFairness,
    target: &ResourceTarget,
    query: &Query<'_>,
    is_watch: bool,
) -> ListWork {
    let registry = server.registry.snapshot();
    let Some(served) = registry.resource(&target.group, &target.version, &target.resource) else {
        return ListWork::default();
    };
    // Counting does not wait: the store keeps the number.
    let count = server.store.count(&served.resource.all()).now_or_never().and_then(Result::ok);
    let limit = query.number("limit").ok().flatten().unwrap_or(0);
    let has = |name: &str| query.get(name).is_some_and(|value| !value.is_empty());
    ListWork {
        objects: count.unwrap_or(0) as u64,
        average_bytes: fair.average_bytes(&*server.store, served),
        limit: u64::try_from(limit).unwrap_or(0),
        is_from_cache: is_watch || is_from_cache(query, limit),
        is_single: target.named().is_some(),
        is_selective: has("fieldSelector") || has("labelSelector"),
    }
}

/// Whether v1.34 would serve a list from its cache: not one at an exact version, nor pages after the first.
fn is_from_cache(query: &Query<'_>, limit: i64) -> bool {
    let version = query.get("resourceVersion").unwrap_or("");
    match query.get("resourceVersionMatch").unwrap_or("") {
        "NotOlderThan" => true,
        "" => {
            let is_page = !query.get("continue").unwrap_or("").is_empty();
            !is_page && (limit <= 0 || matches!(version, "" | "0"))
        }
        _ => false,
    }
}

impl PriorityAndFairness {
    /// Returns the average size of a kind's objects: that of the first few, sampled once a minute.
    fn average_bytes(&self, store: &dyn Store, served: &Served) -> u64 {
        let now = self.clock.instant();
        let name = served.resource.as_str();
        if let Some((at, average)) = self.sizes.lock().0.get(name)
            && now.saturating_duration_since(*at) < SIZE_LASTS
        {
            return *average;
        }
        let options = ListOptions { limit: SAMPLE, ..ListOptions::default() };
        let page = store.list(&served.resource.all(), options).now_or_never().and_then(Result::ok);
        let records = page.map(|page| page.records).unwrap_or_default();
        let bytes: usize = records.iter().map(|record| record.value.len()).sum();
        let average = (bytes / records.len().max(1)) as u64;
        self.sizes.lock().0.insert(name.to_owned(), (now, average));
        average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_versions_and_later_pages_do_not_come_from_the_cache() {
        for (query, expected) in [
            ("", true),
            ("resourceVersion=0", true),
            ("resourceVersion=5", true),
            ("limit=10", true),
            ("limit=10&resourceVersion=0", true),
            ("limit=10&resourceVersion=5", false),
            ("continue=x", false),
            ("resourceVersion=5&resourceVersionMatch=Exact", false),
            ("resourceVersion=5&resourceVersionMatch=NotOlderThan", true),
            ("resourceVersionMatch=Other", false),
        ] {
            let query_ = Query::parse(query);
            let limit = query_.number("limit").unwrap().unwrap_or(0);
            assert_eq!(is_from_cache(&query_, limit), expected, "{query}");
        }
    }
}
