//! The server's own `/metrics`, under the names that Kubernetes dashboards expect.
//!
//! Each kind has its own table of requests, so counting one takes a lock that only requests of that kind share, and a
//! look at a handful of numbers. Text is produced on request, sorted by name and labels.

mod flow;
mod requests;
mod series;
mod streams;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use futures::FutureExt;
use parking_lot::Mutex;
use setpoint_exposition::Text;

pub(crate) use self::requests::{RequestLabels, Requests, Scope};
pub(crate) use self::series::{Described, SeriesTable};
pub(crate) use self::streams::StreamMetrics;
use crate::flow::RequestKind;
use crate::kind::Subresource;
use crate::registry::Served;
use crate::server::Server;

/// Metrics that belong to no kind.
#[derive(Default)]
pub(crate) struct ServerMetrics {
    /// Non-resource requests, by path.
    pub(crate) paths: Requests,
    pub(crate) tokens: TokenUses,
    pub(crate) streams: Arc<StreamMetrics>,
    reading: AtomicI64,
    writing: AtomicI64,
}

/// Uses of service account tokens.
#[derive(Clone, Copy)]
pub(crate) enum TokenUse {
    /// From an auto-generated secret.
    Generated,
    /// From a manually created secret.
    Manual,
    /// From an invalidated secret.
    Invalid,
    /// Without an audience.
    Legacy,
    /// After the client should have read a new one.
    Stale,
    /// Before that time.
    Valid,
}

/// Counts the uses of service account tokens.
#[derive(Default)]
pub(crate) struct TokenUses([AtomicU64; 6]);

impl TokenUses {
    pub(crate) fn count(&self, which: TokenUse) {
        self.0[which as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The metrics of a kind.
#[derive(Default)]
pub(crate) struct KindMetrics {
    pub(crate) requests: Requests,
    events: AtomicU64,
    /// Open watches, by scope.
    watches: [AtomicI64; 3],
    /// Requested subresources of a deprecated kind; the empty one is the kind itself.
    deprecated: Mutex<BTreeSet<&'static str>>,
}

impl KindMetrics {
    /// Records a request for a deprecated kind.
    pub(crate) fn deprecated_use(&self, subresource: Option<Subresource>) {
        self.deprecated.lock().insert(subresource.map_or("", Subresource::name));
    }
}

/// Something in progress; it ends when this is dropped.
pub(crate) struct InProgress<'a>(&'a AtomicI64);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServerMetrics {
    /// Counts a request in progress.
    pub(crate) fn begin(&self, is_read: bool) -> InProgress<'_> {
        let gauge = if is_read { &self.reading } else { &self.writing };
        gauge.fetch_add(1, Ordering::Relaxed);
        InProgress(gauge)
    }
}

/// An open watch of a kind.
pub(crate) struct OpenWatch {
    served: Arc<Served>,
    scope: Scope,
}

impl OpenWatch {
    pub(crate) fn new(served: Arc<Served>, scope: Scope) -> Self {
        served.measured.watches[scope as usize].fetch_add(1, Ordering::Relaxed);
        Self { served, scope }
    }

    /// Counts events sent to the watcher.
    pub(crate) fn sent(&self, events: u64) {
        self.served.measured.events.fetch_add(events, Ordering::Relaxed);
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.served.measured.watches[self.scope as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

const COMPONENT: (&str, &str) = ("component", "apiserver");

/// Returns all metrics in the Prometheus text format.
pub(crate) fn text(server: &Server) -> String {
    let registry = server.registry.snapshot();
    let kinds: Vec<&Arc<Served>> = registry.all().collect();
    let mut text = Text::default();
    server.aggregation.metrics.write(&mut text);
    server.admission_metrics.write(&mut text);
    audit(server, &mut text);
    server.conversions.metrics.write(&mut text);
    in_flight(server, &mut text);
    if let Some(flow) = &server.flow {
        flow::write(flow, server.clock.instant(), &mut text);
    }
    long_running(&kinds, &mut text);
    deprecated(&kinds, &mut text);
    requests::write(&server.measured.paths, &kinds, &mut text);
    stored(server, &kinds, &mut text);
    server.measured.streams.write_streams(&mut text);
    watch_events(&kinds, &mut text);
    server.measured.streams.write_logs(&mut text);
    text.head(
        "kubernetes_build_info",
        "gauge",
        "[ALPHA] A metric with a constant '1' value labeled by major, minor and git version of this server.",
    );
    let version = [("git_version", crate::discovery::GIT_VERSION), ("major", "1"), ("minor", "34")];
    text.sample("kubernetes_build_info", &version, 1);
    token_uses(server, &mut text);
    server.auth_metrics.write(&mut text);
    text.head("setpoint_apiserver_panics_total", "counter", "Requests that ended in a panic.");
    text.sample("setpoint_apiserver_panics_total", &[], crate::chain::panic_count());
    text.finish()
}

fn audit(server: &Server, text: &mut Text) {
    let none = crate::audit::Metrics::default();
    let measured = server.audit.as_ref().map_or(&none, |audit| &*audit.measured);
    const ERRORS: &str = "apiserver_audit_error_total";
    let help = "[ALPHA] Audit events that a backend dropped, by backend.";
    text.head(ERRORS, "counter", help);
    measured.errors().for_each(|(plugin, count)| text.sample(ERRORS, &[("plugin", plugin)], count));
    const EVENTS: &str = "apiserver_audit_event_total";
    text.head(EVENTS, "counter", "[ALPHA] Audit events sent to the backends.");
    text.sample(EVENTS, &[], measured.events());
    const LEVELS: &str = "apiserver_audit_level_total";
    text.head(LEVELS, "counter", "[ALPHA] Requests by the audit level of the policy rule that they matched.");
    measured.levels().for_each(|(level, count)| text.sample(LEVELS, &[("level", level)], count));
    const REJECTED: &str = "apiserver_audit_requests_rejected_total";
    let help = "[ALPHA] Requests rejected because they could not be audited.";
    text.head(REJECTED, "counter", help);
    text.sample(REJECTED, &[], measured.rejected());
}

fn token_uses(server: &Server, text: &mut Text) {
    use TokenUse::{Generated, Invalid, Legacy, Manual, Stale, Valid};
    for (which, name, help) in [
        (Invalid, "invalid_legacy_auto_token_uses_total", "Uses of tokens of secrets that were invalidated."),
        (Generated, "legacy_auto_token_uses_total", "Uses of tokens of generated secrets."),
        (Manual, "legacy_manual_token_uses_total", "Uses of tokens of manually created secrets."),
        (Legacy, "legacy_tokens_total", "Uses of service account tokens without an audience."),
        (Stale, "stale_tokens_total", "Uses of mounted tokens that the client should have read again."),
        (Valid, "valid_tokens_total", "Uses of mounted tokens that are not stale."),
    ] {
        let name = format!("serviceaccount_{name}");
        text.head(&name, "counter", &format!("[ALPHA] {help}"));
        text.sample(&name, &[], server.measured.tokens.0[which as usize].load(Ordering::Relaxed));
    }
}

fn deprecated(kinds: &[&Arc<Served>], text: &mut Text) {
    const NAME: &str = "apiserver_requested_deprecated_apis";
    text.head(
        NAME,
        "gauge",
        "[STABLE] 1 for each deprecated API that was requested, with the release that removes it.",
    );
    for served in kinds {
        let kind = &served.kind;
        let Some(deprecation) = &kind.deprecation else { continue };
        for subresource in &*served.measured.deprecated.lock() {
            let labels = [
                ("group", kind.group.as_str()),
                ("removed_release", deprecation.removed_release),
                ("resource", &kind.plural),
                ("subresource", subresource),
                ("version", &kind.version),
            ];
            text.sample(NAME, &labels, 1);
        }
    }
}

fn in_flight(server: &Server, text: &mut Text) {
    const NAME: &str = "apiserver_current_inflight_requests";
    text.head(NAME, "gauge", "[STABLE] Number of requests in flight by their kind.");
    let Some(flow) = &server.flow else {
        for (kind, gauge) in [("mutating", &server.measured.writing), ("readOnly", &server.measured.reading)]
        {
            text.sample(NAME, &[("request_kind", kind)], gauge.load(Ordering::Relaxed));
        }
        return;
    };
    let most = [("mutating", RequestKind::Mutating), ("readOnly", RequestKind::ReadOnly)]
        .map(|(kind, sort)| (kind, flow.in_flight.most(sort)));
    for (kind, (executing, _)) in most {
        text.sample(NAME, &[("request_kind", kind)], executing);
    }
    const WAITING: &str = "apiserver_current_inqueue_requests";
    text.head(
        WAITING,
        "gauge",
        "[ALPHA] Maximum number of queued requests in the last second, by their kind.",
    );
    for (kind, (_, waiting)) in most {
        text.sample(WAITING, &[("request_kind", kind)], waiting);
    }
}

fn long_running(kinds: &[&Arc<Served>], text: &mut Text) {
    const NAME: &str = "apiserver_longrunning_requests";
    text.head(NAME, "gauge", "[STABLE] Open watches by verb, group, version, resource, scope and component.");
    for served in kinds {
        for scope in Scope::ALL {
            let open = served.measured.watches[scope as usize].load(Ordering::Relaxed);
            if open > 0 {
                let kind = &served.kind;
                let labels = [
                    COMPONENT,
                    ("group", &kind.group),
                    ("resource", &kind.plural),
                    ("scope", scope.name()),
                    ("subresource", ""),
                    ("verb", "WATCH"),
                    ("version", &kind.version),
                ];
                text.sample(NAME, &labels, open);
            }
        }
    }
}

/// Writes the number of stored objects, under the old name and v1.34's.
fn stored(server: &Server, kinds: &[&Arc<Served>], text: &mut Text) {
    let mut counts: Vec<(&str, &str, usize)> = Vec::new();
    for served in kinds {
        // Counting does not wait: the store keeps the number.
        let Some(Ok(count)) = server.store.count(&served.resource.all()).now_or_never() else { continue };
        let kind = &served.kind;
        let is_new =
            counts.iter().all(|(group, resource, _)| (*group, *resource) != (&kind.group, &kind.plural));
        if is_new && kind.strategy.computed(None).is_none() {
            counts.push((&kind.group, &kind.plural, count));
        }
    }
    text.head(
        "apiserver_resource_objects",
        "gauge",
        "[ALPHA] Number of stored objects by group and resource.",
    );
    for (group, resource, count) in &counts {
        text.sample("apiserver_resource_objects", &[("group", group), ("resource", resource)], count);
    }
    text.head("apiserver_storage_objects", "gauge", "[STABLE] Number of stored objects by resource.");
    for (group, resource, count) in &counts {
        let dot = if group.is_empty() { "" } else { "." };
        text.sample("apiserver_storage_objects", &[("resource", &format!("{resource}{dot}{group}"))], count);
    }
}

fn watch_events(kinds: &[&Arc<Served>], text: &mut Text) {
    const NAME: &str = "apiserver_watch_events_total";
    text.head(NAME, "counter", "[ALPHA] Number of events sent to watchers.");
    for served in kinds {
        let sent = served.measured.events.load(Ordering::Relaxed);
        if sent > 0 {
            let kind = &served.kind;
            let labels = [("group", &*kind.group), ("resource", &kind.plural), ("version", &kind.version)];
            text.sample(NAME, &labels, sent);
        }
    }
}
