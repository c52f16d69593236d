//! Request counts and durations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use setpoint_exposition::Text;

use super::COMPONENT;
use crate::kind::{Subresource, Verb};
use crate::negotiate::media_type;
use crate::query::Query;
use crate::registry::Served;

/// Whether a request is for one object, for a namespace, or for all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Cluster,
    Namespace,
    Resource,
}

impl Scope {
    pub(crate) const ALL: [Self; 3] = [Self::Cluster, Self::Namespace, Self::Resource];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Namespace => "namespace",
            Self::Resource => "resource",
        }
    }

    pub(crate) fn of(verb: Verb, namespace: Option<&str>, name: Option<&str>) -> Self {
        match (name, namespace) {
            _ if verb == Verb::Create => Self::Resource,
            (Some(_), _) => Self::Resource,
            (None, Some(_)) => Self::Namespace,
            (None, None) => Self::Cluster,
        }
    }
}

/// The labels that distinguish a kind's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestLabels {
    verb: &'static str,
    dry_run: &'static str,
    subresource: &'static str,
    scope: &'static str,
}

impl RequestLabels {
    pub(crate) fn of_object(
        verb: Verb,
        subresource: Option<Subresource>,
        scope: Scope,
        query: &Query<'_>,
        headers: &HeaderMap,
    ) -> Self {
        let is_apply = || media_type(headers) == "application/apply-patch+yaml";
        let verb = match verb {
            _ if subresource.is_some_and(Subresource::is_connection) => "CONNECT",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch if is_apply() => "APPLY",
            Verb::Patch => "PATCH",
            Verb::Delete | Verb::DeleteCollection => "DELETE",
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
        };
        let dry_run = match query.get("dryRun") {
            None => "",
            Some("All") => "All",
            Some(_) => "invalid",
        };
        let subresource = subresource.map_or("", Subresource::name);
        Self { verb, dry_run, subresource, scope: scope.name() }
    }

    /// Classifies a non-resource request. Arbitrary paths from clients count as one.
    pub(crate) fn of_path(method: &Method, first: Option<&str>) -> Self {
        let verb = match *method {
            Method::GET | Method::HEAD => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let known = ["/healthz", "/livez", "/metrics", "/openapi", "/readyz", "/version"];
        let subresource = known.into_iter().find(|path| first == path.strip_prefix('/')).unwrap_or("");
        Self { verb, dry_run: "", subresource, scope: "" }
    }
}

/// As in v1.34.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// Requests of one sort with one response code.
#[derive(Clone, Copy, Default)]
struct Answered {
    count: u64,
    seconds: f64,
    /// Counts by the first bucket that fits.
    buckets: [u64; BUCKETS.len()],
}

impl Answered {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.seconds += other.seconds;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, more)| *sum += more);
    }
}

/// The requests of one kind. A few dozen entries at most: the verbs of a kind and their response codes.
#[derive(Default)]
pub(crate) struct Requests(Mutex<Vec<((RequestLabels, u16), Answered)>>);

impl Requests {
    pub(crate) fn count(&self, sort: RequestLabels, code: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.partition_point(|bound| *bound < seconds);
        let mut all = self.0.lock();
        let at = all.iter().position(|(key, _)| *key == (sort, code)).unwrap_or_else(|| {
            all.push(((sort, code), Answered::default()));
            all.len() - 1
        });
        let answered = &mut all[at].1;
        answered.count += 1;
        answered.seconds += seconds;
        if let Some(count) = answered.buckets.get_mut(bucket) {
            *count += 1;
        }
    }
}

/// The group, version and resource of requests.
type ResourceLabels<'a> = (&'a str, &'a str, &'a str);

pub(super) fn write(paths: &Requests, kinds: &[&Arc<Served>], text: &mut Text) {
    let mut all: BTreeMap<(ResourceLabels<'_>, RequestLabels, u16), Answered> = BTreeMap::new();
    all.extend(
        paths.0.lock().iter().map(|((sort, code), answered)| ((("", "", ""), *sort, *code), *answered)),
    );
    for served in kinds {
        let whose = (&*served.kind.group, &*served.kind.version, &*served.kind.plural);
        let requests = served.measured.requests.0.lock();
        all.extend(requests.iter().map(|((sort, code), answered)| ((whose, *sort, *code), *answered)));
    }
    write_durations(&all, text);
    const NAME: &str = "apiserver_request_total";
    text.head(NAME, "counter", "[STABLE] Requests by verb, resource and response code.");
    for ((whose, sort, code), answered) in &all {
        let code = code.to_string();
        let mut labels = vec![("code", code.as_str())];
        labels.extend(labels_of(whose, sort, true));
        text.sample(NAME, &labels, answered.count);
    }
}

fn labels_of<'a>(
    whose: &ResourceLabels<'a>,
    sort: &RequestLabels,
    with_dry_run: bool,
) -> Vec<(&'static str, &'a str)> {
    let mut labels = vec![COMPONENT];
    if with_dry_run {
        labels.push(("dry_run", sort.dry_run));
    }
    labels.extend([
        ("group", whose.0),
        ("resource", whose.2),
        ("scope", sort.scope),
        ("subresource", sort.subresource),
        ("verb", sort.verb),
        ("version", whose.1),
    ]);
    labels
}

/// Writes request durations for all response codes. Nothing here waits for webhooks or in queues, so the SLI duration
/// is the same.
fn write_durations(all: &BTreeMap<(ResourceLabels<'_>, RequestLabels, u16), Answered>, text: &mut Text) {
    let mut sums: BTreeMap<(ResourceLabels<'_>, RequestLabels), Answered> = BTreeMap::new();
    for ((whose, sort, _), answered) in all {
        sums.entry((*whose, *sort)).or_default().add(answered);
    }
    const NAME: &str = "apiserver_request_duration_seconds";
    text.head(NAME, "histogram", "[STABLE] Seconds to respond to requests, by verb and resource.");
    for ((whose, sort), answered) in &sums {
        histogram(NAME, &labels_of(whose, sort, true), answered, text);
    }
    const OBJECTIVE: &str = "apiserver_request_sli_duration_seconds";
    text.head(
        OBJECTIVE,
        "histogram",
        "[ALPHA] Seconds to respond to requests, without webhook and queue time.",
    );
    let mut sums: BTreeMap<(ResourceLabels<'_>, RequestLabels), Answered> = BTreeMap::new();
    for ((whose, sort, _), answered) in all {
        sums.entry((*whose, RequestLabels { dry_run: "", ..*sort })).or_default().add(answered);
    }
    for ((whose, sort), answered) in &sums {
        histogram(OBJECTIVE, &labels_of(whose, sort, false), answered, text);
    }
}

fn histogram(name: &str, labels: &[(&str, &str)], answered: &Answered, text: &mut Text) {
    let mut so_far = 0;
    let buckets = BUCKETS.iter().zip(answered.buckets).map(|(bound, count)| {
        so_far += count;
        (*bound, so_far)
    });
    text.histogram(name, labels, buckets, answered.count, answered.seconds);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let requests = Requests::default();
        let sort = RequestLabels::of_path(&Method::GET, Some("livez"));
        for millis in [1, 5, 6, 100_000] {
            requests.count(sort, 200, Duration::from_millis(millis));
        }
        requests.count(sort, 500, Duration::from_millis(1));
        let mut text = Text::default();
        write(&requests, &[], &mut text);
        let text = text.finish();
        let labels = r#"component="apiserver",dry_run="",group="",resource="",scope="",subresource="/livez",verb="GET",version="""#;
        for line in [
            format!("apiserver_request_total{{code=\"200\",{labels}}} 4"),
            format!("apiserver_request_total{{code=\"500\",{labels}}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.005\"}} 3"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"60\"}} 4"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 5"),
            format!("apiserver_request_duration_seconds_count{{{labels}}} 5"),
        ] {
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
}
