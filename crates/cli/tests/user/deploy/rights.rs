//! The roles that the chart makes are enough for its controllers, and the secure port answers those it should.

use super::manager::{Manager, STRANGER, token};
use super::{arguments, objects, only, render};
use crate::binary::{Up, eventually};

/// Something to do for most controllers.
pub(super) const WORK: &str = include_str!("../programs/work.yaml");

/// A cluster without controllers, in which the chart has been applied; and the arguments of its container.
pub(super) fn deployed(values: &[&str]) -> (Up, Vec<String>) {
    let up = Up::start(&["--controllers=-*", "--nodes=2", "--default-storage-class"]);
    let manifests = render(values);
    up.kubectl_with(&["apply", "--validate=strict", "-f", "-"], &manifests);
    let arguments = arguments(only(&objects(&manifests), "Deployment"));
    (up, arguments)
}

fn check(own_accounts: bool) {
    let setting = format!("useServiceAccountCredentials={own_accounts}");
    let reader = "metrics.readers[0].name=reader,metrics.readers[0].namespace=default";
    let (up, arguments) = deployed(&["--set", &setting, "--set", reader]);
    let manager = Manager::start(&up, &arguments);
    eventually("the manager is ready", || manager.is_ready());
    up.kubectl(&["create", "serviceaccount", "reader"]);
    up.kubectl_with(&["apply", "-f", "-"], WORK);
    for workload in ["deployment/web", "statefulset/db", "daemonset/agent"] {
        up.kubectl(&["rollout", "status", workload, "--timeout=60s"]);
    }
    up.kubectl(&["wait", "--for=condition=Complete", "job/once", "--timeout=60s"]);
    up.kubectl(&["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data-db-0", "--timeout=60s"]);
    up.kubectl(&["wait", "--for=jsonpath={.status.used.pods}", "quota/all", "--timeout=60s"]);
    up.kubectl(&["delete", "deployment/web", "--cascade=foreground", "--timeout=60s"]);
    up.kubectl(&["delete", "namespace/team", "--timeout=60s"]);

    assert!(manager.get("/livez", STRANGER).ok && manager.get("/healthz", STRANGER).ok);
    assert!(!manager.get("/metrics", STRANGER).ok, "metrics are not for everyone");
    let metrics = manager.get("/metrics", &token(&up, "reader", "default"));
    assert!(metrics.ok, "{}", metrics.err);
    let forbidden: Vec<_> = metrics.out.lines().filter(|line| line.contains("code=\"403\"")).collect();
    assert!(forbidden.is_empty(), "{forbidden:?}\n{}", manager.log());
    assert!(!manager.log().contains("forbidden"), "{}", manager.log());
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
