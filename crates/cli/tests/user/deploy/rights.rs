//! The chart's roles are sufficient for its controllers, and the secure port serves the right clients.

use std::fs;

use super::manager::{Manager, STRANGER, token};
use super::{arguments, objects, only, render};
use crate::binary::{Up, eventually};

/// Records all requests, and whether a role allowed them.
const POLICY: &str =
    r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}"#;

/// Work for most controllers.
pub(super) const WORK: &str = include_str!("../programs/work.yaml");

/// A cluster with the chart applied.
pub(super) struct Deployed {
    pub(super) up: Up,
    /// The arguments of the container.
    pub(super) arguments: Vec<String>,
    audit: tempfile::TempDir,
}

impl Deployed {
    /// Applies the chart with these values to a cluster without controllers.
    pub(super) fn new(values: &[&str]) -> Self {
        Self::beside("-*", values)
    }

    /// The same for a cluster that runs these controllers itself.
    pub(super) fn beside(controllers: &str, values: &[&str]) -> Self {
        let audit = tempfile::tempdir().expect("a temporary directory");
        let (policy, log) = (audit.path().join("policy"), audit.path().join("log"));
        fs::write(&policy, POLICY).expect("a policy");
        let files = [policy.to_str().expect("a path"), log.to_str().expect("a path")];
        let audited = ["--audit-policy-file", files[0], "--audit-log-path", files[1]];
        let up = Up::start(&[&["--controllers", controllers, "--nodes=2"], &audited[..]].concat());
        let manifests = render(values);
        up.kubectl_with(&["apply", "--validate=strict", "-f", "-"], &manifests);
        let arguments = arguments(only(&objects(&manifests), "Deployment"));
        Self { up, arguments, audit }
    }

    /// Returns the requests that no role allowed.
    pub(super) fn forbidden(&self) -> Vec<String> {
        let log = self.audit_log();
        assert!(log.contains(r#""authorization.k8s.io/decision":"allow""#), "decisions are recorded");
        let forbidden = |line: &&str| line.contains(r#""authorization.k8s.io/decision":"forbid""#);
        log.lines().filter(forbidden).map(str::to_owned).collect()
    }

    pub(super) fn audit_log(&self) -> String {
        fs::read_to_string(self.audit.path().join("log")).expect("an audit log")
    }
}

fn check(own_accounts: bool) {
    let setting = format!("useServiceAccountCredentials={own_accounts}");
    let reader = "metrics.readers[0].name=reader,metrics.readers[0].namespace=default";
    let deployed = Deployed::new(&["--set", &setting, "--set", reader]);
    let up = &deployed.up;
    let manager = Manager::start(up, &deployed.arguments);
    eventually("the manager is ready", || manager.is_ready());
    up.kubectl(&["create", "serviceaccount", "reader"]);
    up.kubectl_with(&["apply", "-f", "-"], WORK);
    for workload in ["deployment/web", "statefulset/db", "daemonset/agent"] {
        up.kubectl(&["rollout", "status", workload, "--timeout=60s"]);
    }
    up.kubectl(&["wait", "--for=condition=Complete", "job/once", "--timeout=60s"]);
    up.kubectl(&["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data-db-0", "--timeout=60s"]);
    up.kubectl(&["wait", "--for=jsonpath={.status.used.pods}", "quota/all", "-n", "team", "--timeout=60s"]);
    up.kubectl(&["delete", "deployment/web", "--cascade=foreground", "--timeout=60s"]);
    up.kubectl(&["delete", "namespace/team", "--timeout=60s"]);
    assert_eq!(deployed.forbidden(), Vec::<String>::new(), "{}", manager.log());

    assert!(manager.get("/livez", STRANGER).ok && manager.get("/healthz", STRANGER).ok);
    assert!(!manager.get("/metrics", STRANGER).ok, "metrics require authorization");
    let metrics = manager.get("/metrics", &token(up, "reader", "default"));
    assert!(metrics.ok, "{}", metrics.err);
    assert!(metrics.out.contains("process_resident_memory_bytes "), "the process is measured");
}

#[test]
fn controllers_have_the_roles_that_they_need_as_their_own_accounts() {
    check(true);
}

#[test]
fn controllers_have_the_roles_that_they_need_as_one_account() {
    check(false);
}
