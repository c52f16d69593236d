//! Validates probes and lifecycle hooks.

use serde_json::Value;

use super::Scope;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::{add_invalid, nonnegative_field, port, words};

impl Scope<'_> {
    pub(super) fn check_probes(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let probe = container.at(kind);
            if probe.is_null() {
                continue;
            }
            let path = path.child(kind);
            self.check_probe(probe, &path, errors);
            if kind != "readinessProbe" {
                let threshold = probe.count("successThreshold");
                if threshold != 1 {
                    errors.invalid(&path.child("successThreshold"), threshold, "must be 1");
                }
            } else if let Some(seconds) = probe.int("terminationGracePeriodSeconds") {
                let path = path.child("terminationGracePeriodSeconds");
                errors.invalid(&path, seconds, "must not be set for readinessProbes");
            }
        }
    }

    fn check_probe(&self, probe: &Value, path: &Path<'_>, errors: &mut Errors) {
        self.check_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], path, errors);
        let numbers = [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ];
        for field in numbers {
            nonnegative_field(probe, field, path, errors);
        }
        if let Some(seconds) = probe.int("terminationGracePeriodSeconds").filter(|seconds| *seconds <= 0) {
            errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
        }
    }

    pub(super) fn check_lifecycle(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        let lifecycle = container.at("lifecycle");
        let path = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            if lifecycle.has(hook) {
                let handlers = ["exec", "httpGet", "tcpSocket", "sleep"];
                self.check_handler(lifecycle.at(hook), &handlers, &path.child(hook), errors);
            }
        }
    }

    /// Requires exactly one handler type.
    fn check_handler(&self, handler: &Value, kinds: &[&str], path: &Path<'_>, errors: &mut Errors) {
        let mut found = false;
        for kind in kinds.iter().filter(|kind| handler.has(kind)) {
            if found {
                errors.forbidden(&path.child(kind), "may not specify more than 1 handler type");
            } else {
                self.check_action(kind, handler.at(kind), &path.child(kind), errors);
            }
            found = true;
        }
        if !found {
            errors.required(path, "must specify a handler type");
        }
    }

    fn check_action(&self, kind: &str, action: &Value, path: &Path<'_>, errors: &mut Errors) {
        match kind {
            "exec" if action.list("command").is_empty() => errors.required(&path.child("command"), ""),
            "httpGet" => check_http_get(action, path, errors),
            "tcpSocket" | "grpc" => check_port(action, path, errors),
            "sleep" => self.check_sleep(action.count("seconds"), path, errors),
            _ => {}
        }
    }

    fn check_sleep(&self, seconds: i64, path: &Path<'_>, errors: &mut Errors) {
        if let Some(limit) = self.grace_period.filter(|limit| seconds < 0 || seconds > *limit) {
            let detail =
                format!("must be non-negative and less than terminationGracePeriodSeconds ({limit})");
            errors.invalid(path, seconds, detail);
        }
    }
}

fn check_http_get(get: &Value, path: &Path<'_>, errors: &mut Errors) {
    if get.text("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    check_port(get, path, errors);
    let scheme = get.text("scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in get.list("httpHeaders") {
        let name = header.text("name");
        add_invalid(words::header_name(name), name, &path.child("httpHeaders"), errors);
    }
}

fn check_port(action: &Value, path: &Path<'_>, errors: &mut Errors) {
    port(action.at("port"), &path.child("port"), errors);
}
