//! The rules of each level of the Pod Security Standards, by version. Pure functions.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::{Level, LevelVersion};
use crate::json::Json;

/// The latest version that changed a rule.
const NEWEST: u32 = 34;

/// Why a pod is forbidden: in short, and in detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: Cow<'static, str>,
    detail: String,
}

/// A rule and the version that introduced it. A restricted rule may replace a baseline one.
struct Check {
    level: Level,
    since: u32,
    /// The version since which a stricter restricted rule replaces this one at the restricted level.
    replaced_since: Option<u32>,
    check: fn(&Pod<'_>) -> Option<Violation>,
}

/// Sorted by name, baseline rules first: messages list violations in this order.
const CHECKS: &[Check] = &[
    Check::baseline(0, app_armor),
    Check { replaced_since: Some(22), ..Check::baseline(0, capabilities) },
    Check::baseline(0, host_namespaces),
    Check { replaced_since: Some(0), ..Check::baseline(0, host_paths) },
    Check::baseline(0, host_ports),
    Check::baseline(34, probe_hosts),
    Check::baseline(0, privileged),
    Check::baseline(0, proc_mount),
    Check::baseline(0, selinux),
    Check { replaced_since: Some(19), ..Check::baseline(0, seccomp) },
    Check::baseline(0, sysctls),
    Check::baseline(0, host_process),
    Check::restricted(8, privilege_escalation),
    Check::restricted(22, dropped_capabilities),
    Check::restricted(0, volume_types),
    Check::restricted(0, run_as_non_root),
    Check::restricted(23, run_as_user),
    Check::restricted(19, required_seccomp),
];

/// A pod or pod template, and the version of the standards to apply.
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    version: u32,
}

/// Returns the violations of a level by a pod or pod template.
pub(super) fn violations(level: LevelVersion, pod: &Value) -> Vec<Violation> {
    let version = level.version.map_or(NEWEST, |version| version.min(NEWEST));
    let pod = Pod { metadata: pod.at("metadata"), spec: pod.at("spec"), version };
    let applies = |check: &&Check| {
        let is_replaced = level.level == Level::Restricted
            && check.replaced_since.is_some_and(|replaced| version >= replaced);
        check.level <= level.level && check.since <= version && !is_replaced
    };
    CHECKS.iter().filter(applies).filter_map(|check| (check.check)(&pod)).collect()
}

/// Formats violations: `privileged (container "c" must not …), hostPort (…)`.
pub(super) fn in_detail(violations: &[Violation]) -> String {
    let shown = violations.iter().map(|violation| format!("{} ({})", violation.reason, violation.detail));
    shown.collect::<Vec<_>>().join(", ")
}

impl Check {
    const fn baseline(since: u32, check: fn(&Pod<'_>) -> Option<Violation>) -> Self {
        Self { level: Level::Baseline, since, replaced_since: None, check }
    }

    const fn restricted(since: u32, check: fn(&Pod<'_>) -> Option<Violation>) -> Self {
        Self { level: Level::Restricted, since, replaced_since: None, check }
    }
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| spec.list(list))
    }

    /// Returns the names of the containers for which `is_bad` is true.
    fn bad(&self, is_bad: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers()
            .filter(|container| is_bad(container))
            .map(|container| container.text("name"))
            .collect()
    }

    /// Returns the setters (`pod`, or containers by name) whose `securityContext` satisfies `is_bad`, as subjects of a
    /// sentence.
    fn bad_setters(&self, is_bad: impl Fn(&Value) -> bool) -> Vec<String> {
        let mut setters = Vec::new();
        if is_bad(self.spec.at("securityContext")) {
            setters.push("pod".to_owned());
        }
        let containers = self.bad(|container| is_bad(container.at("securityContext")));
        if !containers.is_empty() {
            setters.push(containers_named(&containers));
        }
        setters
    }

    /// Returns all security contexts, the pod's own first.
    fn contexts(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let own = self.spec.at("securityContext");
        std::iter::once(own).chain(self.containers().map(|container| container.at("securityContext")))
    }

    fn is_windows(&self) -> bool {
        self.version >= 25 && self.spec.at("os").text("name") == "windows"
    }
}

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.into(), detail })
}

fn plural<'w>(one: &'w str, many: &'w str, count: usize) -> &'w str {
    if count == 1 { one } else { many }
}

fn quoted<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    words.into_iter().map(|word| format!("{:?}", word.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Formats container names: `container "a"`, `containers "a", "b"`.
fn containers_named(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// Returns the forbidden values of a field in all contexts.
fn values<'a>(
    contexts: impl Iterator<Item = &'a Value>,
    value: impl Fn(&'a Value) -> Option<&'a str>,
) -> BTreeSet<&'a str> {
    contexts.filter_map(value).collect()
}

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |context: &Value| {
        let profile = context.at("appArmorProfile");
        profile.is_object() && !matches!(profile.text("type"), "RuntimeDefault" | "Localhost")
    };
    let mut setters = pod.bad_setters(bad);
    let bad_values = values(pod.contexts().filter(|context| bad(context)), |context| {
        Some(context.at("appArmorProfile").text("type"))
    });
    let mut listed: Vec<String> = bad_values.into_iter().map(Into::into).collect();
    let annotations = pod.metadata.map("annotations").into_iter().flatten();
    let mut forbidden: Vec<String> = annotations
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(key, value)| {
            let is_fine = matches!(*value, "" | "runtime/default") || value.starts_with("localhost/");
            key.starts_with(APP_ARMOR) && !is_fine
        })
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    if !forbidden.is_empty() {
        forbidden.sort();
        setters.push(plural("annotation", "annotations", forbidden.len()).to_owned());
        listed.append(&mut forbidden);
    }
    if setters.is_empty() {
        return None;
    }
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", listed.len());
    let detail =
        format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(&listed));
    Some(Violation { reason: reason.to_owned().into(), detail })
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Returns the capabilities that a container adds beyond the allowed ones.
fn added<'a>(container: &'a Value, allowed: &[&str]) -> Vec<&'a str> {
    let added = container.at("securityContext").at("capabilities").list("add").iter();
    added.filter_map(Value::as_str).filter(|capability| !allowed.contains(capability)).collect()
}

/// Reports forbidden capabilities: `containers "a" must not include "X" in securityContext.capabilities.add`.
fn adding(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let bad = pod.bad(|container| !added(container, allowed).is_empty());
    let capabilities: BTreeSet<&str> =
        pod.containers().flat_map(|container| added(container, allowed)).collect();
    (!bad.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers_named(&bad),
            quoted(capabilities)
        )
    })
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    violation("non-default capabilities", adding(pod, &DEFAULT_CAPABILITIES)?)
}

fn dropped_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let keeps = pod.bad(|container| {
        let dropped = container.at("securityContext").at("capabilities").list("drop");
        !dropped.iter().any(|capability| capability == "ALL")
    });
    let mut details = Vec::new();
    if !keeps.is_empty() {
        let who = containers_named(&keeps);
        details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    details.extend(adding(pod, &["NET_BIND_SERVICE"]));
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec.flag(field));
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.list("volumes").iter().filter(|volume| volume.has("hostPath"));
    let names: Vec<&str> = volumes.map(|volume| volume.text("name")).collect();
    let detail = || format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names));
    if names.is_empty() { None } else { violation("hostPath volumes", detail()) }
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports = |container: &Value| -> Vec<i64> {
        container.list("ports").iter().map(|port| port.count("hostPort")).filter(|port| *port != 0).collect()
    };
    let bad = pod.bad(|container| !ports(container).is_empty());
    let used: BTreeSet<String> = pod.containers().flat_map(ports).map(|port| port.to_string()).collect();
    if bad.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        containers_named(&bad),
        plural("uses", "use", bad.len()),
        plural("hostPort", "hostPorts", used.len()),
        used.into_iter().collect::<Vec<_>>().join(", ")
    );
    violation("hostPort", detail)
}

/// Returns the hosts of a container's probes and lifecycle hooks.
fn hosts(container: &Value) -> Vec<&str> {
    let lifecycle = container.at("lifecycle");
    let handlers = [
        container.at("livenessProbe"),
        container.at("readinessProbe"),
        container.at("startupProbe"),
        lifecycle.at("postStart"),
        lifecycle.at("preStop"),
    ];
    let hosts = handlers.into_iter().flat_map(|handler| [handler.at("httpGet"), handler.at("tcpSocket")]);
    hosts.map(|target| target.text("host")).filter(|host| !host.is_empty()).collect()
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    let bad: BTreeSet<&str> = pod.bad(|container| !hosts(container).is_empty()).into_iter().collect();
    let used: BTreeSet<&str> = pod.containers().flat_map(hosts).collect();
    if bad.is_empty() {
        return None;
    }
    let bad: Vec<&str> = bad.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers_named(&bad),
        plural("uses", "use", bad.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", used.len()),
        quoted(used)
    );
    violation("probe or lifecycle host", detail)
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad = pod.bad(|container| container.at("securityContext").flag("privileged"));
    let detail = || format!("{} must not set securityContext.privileged=true", containers_named(&bad));
    if bad.is_empty() { None } else { violation("privileged", detail()) }
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mount = |container: &'_ Value| container.at("securityContext").text("procMount").to_owned();
    let is_bad = |mount: &str| !matches!(mount, "" | "Default");
    let bad = pod.bad(|container| is_bad(&mount(container)));
    let used: BTreeSet<String> = pod.containers().map(mount).filter(|mount| is_bad(mount)).collect();
    let detail =
        || format!("{} must not set securityContext.procMount to {}", containers_named(&bad), quoted(&used));
    if bad.is_empty() { None } else { violation("procMount", detail()) }
}

fn selinux(pod: &Pod<'_>) -> Option<Violation> {
    let newer = pod.version >= 31;
    let is_allowed = |kind: &str| match kind {
        "" | "container_t" | "container_init_t" | "container_kvm_t" => true,
        "container_engine_t" => newer,
        _ => false,
    };
    let bad = |context: &Value| {
        let options = context.at("seLinuxOptions");
        !is_allowed(options.text("type"))
            || !options.text("user").is_empty()
            || !options.text("role").is_empty()
    };
    let setters = pod.bad_setters(bad);
    if setters.is_empty() {
        return None;
    }
    let types = values(pod.contexts(), |context| {
        Some(context.at("seLinuxOptions").text("type")).filter(|kind| !is_allowed(kind))
    });
    let is_set =
        |field: &str| pod.contexts().any(|context| !context.at("seLinuxOptions").text(field).is_empty());
    let mut data = Vec::new();
    if !types.is_empty() {
        data.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    for field in ["user", "role"].into_iter().filter(|field| is_set(field)) {
        data.push(format!("{field} may not be set"));
    }
    let detail = format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        setters.join(" and "),
        data.join("; ")
    );
    violation("seLinuxOptions", detail)
}

fn has_bad_seccomp(context: &Value) -> bool {
    let profile = context.at("seccompProfile");
    profile.is_object() && !matches!(profile.text("type"), "RuntimeDefault" | "Localhost")
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.version < 19 {
        return annotated_seccomp(pod);
    }
    let setters = pod.bad_setters(has_bad_seccomp);
    let used = values(pod.contexts().filter(|context| has_bad_seccomp(context)), |context| {
        Some(context.at("seccompProfile").text("type"))
    });
    let detail = || {
        let who = setters.join(" and ");
        format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&used))
    };
    if setters.is_empty() { None } else { violation("seccompProfile", detail()) }
}

/// Checks the annotations that preceded the seccomp field.
fn annotated_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let of_containers = pod.containers().map(|container| format!("{CONTAINER}{}", container.text("name")));
    let keys: BTreeSet<String> = std::iter::once(POD.to_owned()).chain(of_containers).collect();
    let annotations = pod.metadata.at("annotations");
    let is_fine = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let forbidden: Vec<String> = keys
        .iter()
        .filter_map(|key| Some((key, annotations.get(key)?.as_str()?)))
        .filter(|(_, value)| !is_fine(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    let detail = || {
        let word = plural("annotation", "annotations", forbidden.len());
        format!("forbidden {word} {}", forbidden.join(", "))
    };
    if forbidden.is_empty() { None } else { violation("seccompProfile", detail()) }
}

fn required_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let own = pod.spec.at("securityContext");
    let pod_has_one = own.at("seccompProfile").is_object() && !has_bad_seccomp(own);
    let without = pod
        .bad(|container| !pod_has_one && !container.at("securityContext").at("seccompProfile").is_object());
    let detail = || {
        let who = containers_named(&without);
        format!(
            "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        )
    };
    match seccomp(pod) {
        Some(explicit) => Some(explicit),
        None if without.is_empty() => None,
        None => violation("seccompProfile", detail()),
    }
}

/// The sysctls a pod may set, and since which version.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let set = pod.spec.at("securityContext").list("sysctls").iter().map(|sysctl| sysctl.text("name"));
    let is_allowed =
        |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && *since <= pod.version);
    let forbidden: Vec<&str> = set.filter(|name| !is_allowed(name)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.bad_setters(|context| context.at("windowsOptions").flag("hostProcess"));
    let detail =
        || format!("{} must not set securityContext.windowsOptions.hostProcess=true", setters.join(" and "));
    if setters.is_empty() { None } else { violation("hostProcess", detail()) }
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let bad = pod
        .bad(|container| container.at("securityContext").boolean("allowPrivilegeEscalation") != Some(false));
    let detail =
        || format!("{} must set securityContext.allowPrivilegeEscalation=false", containers_named(&bad));
    if bad.is_empty() { None } else { violation("allowPrivilegeEscalation != false", detail()) }
}

const VOLUME_TYPES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn volume_types(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.list("volumes").iter();
    let bad: Vec<&Value> =
        volumes.filter(|volume| !VOLUME_TYPES.iter().any(|kind| volume.has(kind))).collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |volume: &&Value| {
        let mut fields = volume.as_object().into_iter().flat_map(|volume| volume.keys());
        fields.find(|field| *field != "name").map_or("unknown".to_owned(), Clone::clone)
    };
    let kinds: BTreeSet<String> = bad.iter().map(kind).collect();
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", bad.len()),
        quoted(bad.iter().map(|volume| volume.text("name"))),
        plural("uses", "use", bad.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds)
    );
    violation("restricted volume types", detail)
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let says = |context: &Value| context.boolean("runAsNonRoot");
    let setters = pod.bad_setters(|context| says(context) == Some(false));
    if !setters.is_empty() {
        let detail = format!("{} must not set securityContext.runAsNonRoot=false", setters.join(" and "));
        return violation(REASON, detail);
    }
    let pod_says_so = says(pod.spec.at("securityContext")) == Some(true);
    let silent = pod.bad(|container| says(container.at("securityContext")).is_none() && !pod_says_so);
    let detail =
        || format!("pod or {} must set securityContext.runAsNonRoot=true", containers_named(&silent));
    if silent.is_empty() { None } else { violation(REASON, detail()) }
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.bad_setters(|context| context.int("runAsUser") == Some(0));
    let detail = || format!("{} must not set runAsUser=0", setters.join(" and "));
    if setters.is_empty() { None } else { violation("runAsUser=0", detail()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(level: Level, version: Option<u32>, spec: Value, expected: &[&str]) {
        let pod = json!({"spec": spec});
        let found = violations(LevelVersion { level, version }, &pod);
        let found: Vec<String> = found.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect();
        assert_eq!(found, expected, "{spec}");
    }

    fn with(context: Value) -> Value {
        json!({"containers": [{"name": "c", "securityContext": context}]})
    }

    #[test]
    fn the_baseline_keeps_pods_off_their_host() {
        let baseline = |spec, expected: &[&str]| check(Level::Baseline, None, spec, expected);
        baseline(json!({"containers": [{"name": "c"}]}), &[]);
        baseline(
            with(json!({"privileged": true, "capabilities": {"add": ["NET_ADMIN", "CHOWN"]}})),
            &[
                r#"non-default capabilities (container "c" must not include "NET_ADMIN" in securityContext.capabilities.add)"#,
                r#"privileged (container "c" must not set securityContext.privileged=true)"#,
            ],
        );
        baseline(
            json!({"hostNetwork": true, "hostPID": true, "volumes": [{"name": "v", "hostPath": {}}],
                "containers": [{"name": "a", "ports": [{"hostPort": 80}]}, {"name": "b", "ports": [{"hostPort": 81}]}]}),
            &[
                "host namespaces (hostNetwork=true, hostPID=true)",
                r#"hostPath volumes (volume "v")"#,
                r#"hostPort (containers "a", "b" use hostPorts 80, 81)"#,
            ],
        );
        baseline(
            json!({"securityContext": {"sysctls": [{"name": "kernel.x"}], "seLinuxOptions": {"user": "u"}},
                "containers": [{"name": "c", "securityContext": {"seccompProfile": {"type": "Unconfined"}}}]}),
            &[
                "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set)",
                r#"seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")"#,
                "forbidden sysctls (kernel.x)",
            ],
        );
    }

    #[test]
    fn the_restricted_level_requires_explicit_fields() {
        let fine = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        });
        check(Level::Restricted, None, with(fine), &[]);
        check(
            Level::Restricted,
            None,
            json!({"volumes": [{"name": "v", "nfs": {}}], "containers": [{"name": "c"}]}),
            &[
                r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)"#,
                r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])"#,
                r#"restricted volume types (volume "v" uses restricted volume type "nfs")"#,
                r#"runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)"#,
                r#"seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
            ],
        );
        check(
            Level::Restricted,
            Some(18),
            json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0}, "containers": []}),
            &[],
        );
    }

    #[test]
    fn older_pod_security_versions_check_less() {
        let probe = json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "h"}}}]});
        check(Level::Baseline, Some(33), probe.clone(), &[]);
        check(
            Level::Baseline,
            Some(40),
            probe,
            &[r#"probe or lifecycle host (container "c" uses probe or lifecycle host "h")"#],
        );
    }
}
