//! Metrics of streams to pods and of their logs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use setpoint_exposition::Text;

/// Counts streams that end at this server, by status code, and requests for logs.
#[derive(Default)]
pub(crate) struct StreamMetrics {
    translated: Mutex<BTreeMap<u16, u64>>,
    tunnelled: Mutex<BTreeMap<u16, u64>>,
    logs_verified: AtomicU64,
    logs_unverified: AtomicU64,
    logs_distrusted: AtomicU64,
}

impl StreamMetrics {
    /// Counts an exec or attach whose WebSocket was translated.
    pub(crate) fn translated(&self, code: u16) {
        count(&self.translated, code);
    }

    /// Counts a port-forward whose SPDY connection came in a WebSocket.
    pub(crate) fn tunnelled(&self, code: u16) {
        count(&self.tunnelled, code);
    }

    /// Counts a request for logs.
    pub(crate) fn logs(&self, is_verified: bool) {
        let counter = if is_verified { &self.logs_verified } else { &self.logs_unverified };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request for logs from a kubelet whose certificate could not be verified.
    pub(crate) fn logs_distrusted(&self) {
        self.logs_distrusted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn write_streams(&self, text: &mut Text) {
        let help =
            "[ALPHA] Exec and attach requests over a WebSocket that this server translated, by status code.";
        by_code("apiserver_stream_translator_requests_total", help, &self.translated, text);
        let help =
            "[ALPHA] Port-forward requests inside of a WebSocket that this server tunnelled, by status code.";
        by_code("apiserver_stream_tunnel_requests_total", help, &self.tunnelled, text);
    }

    pub(super) fn write_logs(&self, text: &mut Text) {
        const DISTRUSTED: &str = "kube_apiserver_pod_logs_backend_tls_failure_total";
        let help =
            "[ALPHA] Requests for logs that failed because the kubelet's certificate could not be verified.";
        text.head(DISTRUSTED, "counter", help);
        text.sample(DISTRUSTED, &[], self.logs_distrusted.load(Ordering::Relaxed));
        const USAGE: &str = "kube_apiserver_pod_logs_insecure_backend_total";
        let help = "[ALPHA] Requests for logs, by whether the kubelet's certificate had to be verified.";
        text.head(USAGE, "counter", help);
        for (usage, counter) in
            [("enforce_tls", &self.logs_verified), ("skip_tls_allowed", &self.logs_unverified)]
        {
            text.sample(USAGE, &[("usage", usage)], counter.load(Ordering::Relaxed));
        }
    }
}

/// Counts a status code. All numbers outside the valid range share one series, because a kubelet may send any number.
fn count(counters: &Mutex<BTreeMap<u16, u64>>, code: u16) {
    let code = if (100..600).contains(&code) { code } else { 0 };
    *counters.lock().entry(code).or_default() += 1;
}

fn by_code(name: &str, help: &str, counters: &Mutex<BTreeMap<u16, u64>>, text: &mut Text) {
    text.head(name, "counter", help);
    for (code, count) in &*counters.lock() {
        text.sample(name, &[("code", &code.to_string())], *count);
    }
}
