//! The environment variables of a container, as a kubelet resolves them. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Service};
use setpoint_placement::Resources;

use super::downward;
use super::pod::Pod;
use super::sources::Sources;

/// The inputs of variables.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) sources: &'a Sources,
    /// What the node has.
    pub(crate) allocatable: &'a Resources,
    /// Variables of Services, which are omitted for the programs of containers.
    pub(crate) services: &'a BTreeMap<String, String>,
}

/// The maximum size of a container's variables, and of the words of its command: half of Linux' limit for a program. A
/// sandbox keeps the variables of each run.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// The overhead of a variable.
const VARIABLE_BYTES: usize = 64;

/// The variables of a container under construction.
#[derive(Default)]
struct Variables {
    all: BTreeMap<String, String>,
    /// What they take, including those that others have replaced.
    bytes: usize,
}

impl Variables {
    fn insert(&mut self, name: String, value: String) -> Result<(), String> {
        self.bytes += VARIABLE_BYTES + name.len() + value.len();
        if self.bytes > MAX_BYTES {
            return Err(too_many());
        }
        self.all.insert(name, value);
        Ok(())
    }
}

fn too_many() -> String {
    format!("the environment variables of the container take more than {MAX_BYTES} bytes")
}

/// Resolves the variables of a container. Errors are the kubelet's, except for variables that are too large.
pub(crate) fn environment(
    scope: Scope<'_>,
    container: &Container,
) -> Result<BTreeMap<String, String>, String> {
    let mut variables = Variables::default();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let data = match (&from.config_map_ref, &from.secret_ref) {
            (Some(map), _) => scope.sources.config_map(&map.name, map.optional == Some(true))?,
            (None, Some(secret)) => scope.sources.secret(&secret.name, secret.optional == Some(true))?,
            (None, None) => None,
        };
        for (key, value) in data.into_iter().flatten().filter(|(key, _)| !key.contains('=')) {
            variables.insert(format!("{prefix}{key}"), String::from_utf8_lossy(value).into_owned())?;
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = scope.value(container, variable, &variables.all)? {
            variables.insert(variable.name.clone(), value)?;
        }
    }
    // Those of Services are bounded by their number.
    for (name, value) in scope.services {
        variables.all.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Ok(variables.all)
}

impl Scope<'_> {
    /// Returns the value of a variable. `None` if its optional source is missing.
    fn value(
        &self,
        container: &Container,
        variable: &EnvVar,
        before: &BTreeMap<String, String>,
    ) -> Result<Option<String>, String> {
        match (&variable.value, &variable.value_from) {
            (Some(value), _) if !value.is_empty() => {
                let known = |name: &str| before.get(name).or_else(|| self.services.get(name));
                expand(value, MAX_BYTES, |name| known(name).map(String::as_str))
                    .map(Some)
                    .ok_or_else(too_many)
            }
            (_, Some(source)) => self.sourced(container, source),
            _ => Ok(Some(String::new())),
        }
    }

    fn sourced(&self, container: &Container, source: &EnvVarSource) -> Result<Option<String>, String> {
        if let Some(field) = &source.field_ref {
            return downward::field(self.pod, &field.field_path).map(Some);
        }
        if let Some(selector) = &source.resource_field_ref {
            return downward::resource(self.pod, Some(container), selector, self.allocatable).map(Some);
        }
        let (kind, name, key, data, is_optional) = match (&source.config_map_key_ref, &source.secret_key_ref)
        {
            (Some(map), _) => {
                let is_optional = map.optional == Some(true);
                (
                    "ConfigMap",
                    &map.name,
                    &map.key,
                    self.sources.config_map(&map.name, is_optional)?,
                    is_optional,
                )
            }
            (None, Some(secret)) => {
                let is_optional = secret.optional == Some(true);
                (
                    "Secret",
                    &secret.name,
                    &secret.key,
                    self.sources.secret(&secret.name, is_optional)?,
                    is_optional,
                )
            }
            (None, None) => return Ok(Some(String::new())),
        };
        match data.and_then(|data| data.get(key)) {
            Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
            None if is_optional => Ok(None),
            None => Err(format!("couldn't find key {key} in {kind} {}/{name}", self.pod.metadata.namespace)),
        }
    }
}

/// Expands each `$(name)` of a text. `$$` is a dollar sign, and an unknown name is kept unchanged. `None` if the result
/// has more than `most` bytes.
pub(crate) fn expand<'v>(
    text: &str,
    most: usize,
    mut value: impl FnMut(&str) -> Option<&'v str>,
) -> Option<String> {
    let (mut expanded, mut rest) = (String::new(), text);
    // Nothing after the last parenthesis is searched for one.
    let left_after_last = text.rfind(')').map_or(text.len(), |at| text.len() - at);
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let inside = after.strip_prefix('(').filter(|inside| inside.len() >= left_after_last);
        if let Some((name, left)) = inside.and_then(|inside| inside.split_once(')')) {
            match value(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.push_str(&format!("$({name})")),
            }
            rest = left;
        } else {
            expanded.push('$');
            rest = after.strip_prefix('$').unwrap_or(after);
        }
        if expanded.len() > most {
            return None;
        }
    }
    Some(expanded + rest).filter(|expanded| expanded.len() <= most)
}

/// Whether a variable is named like that of a Service. `NAME_PORT` is more likely the pod's own.
pub(crate) fn may_be_of_a_service(name: &str) -> bool {
    let is_link = name.contains("_PORT_") && (name.contains("_TCP") || name.contains("_UDP"));
    is_link || name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT")
}

/// Returns the variables of the Services that a pod sees: those of its namespace, and always that of the API server.
pub(crate) fn of_services(pod: &Pod, services: &[Service]) -> BTreeMap<String, String> {
    let has_links = pod.spec.enable_service_links.unwrap_or(true);
    let mut variables = BTreeMap::new();
    for service in services {
        let (name, namespace) = (service.metadata.name.as_deref(), service.metadata.namespace.as_deref());
        let is_api_server = name == Some("kubernetes") && namespace == Some("default");
        let is_linked = has_links && namespace == Some(&*pod.metadata.namespace);
        if is_api_server || is_linked {
            add_service(service, &mut variables);
        }
    }
    variables
}

fn add_service(service: &Service, variables: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let address = spec.cluster_ip.as_deref().filter(|address| !matches!(*address, "" | "None"));
    let (Some(address), Some(name)) = (address, &service.metadata.name) else { return };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let Some(first) = ports.first() else { return };
    let variable_name = |text: &str| text.to_uppercase().replace('-', "_");
    let prefix = variable_name(name);
    variables.insert(format!("{prefix}_SERVICE_HOST"), address.to_owned());
    variables.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            variables.insert(format!("{prefix}_SERVICE_PORT_{}", variable_name(name)), port.port.to_string());
        }
        let protocol = port.protocol.as_deref().filter(|protocol| !protocol.is_empty()).unwrap_or("TCP");
        let (number, link) = (port.port, format!("{prefix}_PORT_{}_{protocol}", port.port));
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if std::ptr::eq(port, first) {
            variables.insert(format!("{prefix}_PORT"), url.clone());
        }
        variables.insert(link.clone(), url);
        variables.insert(format!("{link}_PROTO"), protocol.to_lowercase());
        variables.insert(format!("{link}_PORT"), number.to_string());
        variables.insert(format!("{link}_ADDR"), address.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::pod::pod_of;

    fn resolved(container: Value) -> Result<BTreeMap<String, String>, String> {
        let pod = pod_of(
            json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [container]}}),
        );
        let sources =
            Sources::fixed(&[("conf", &[("a", "1"), ("b", "2")])], &[("pass", &[("word", "secret")])]);
        let services = [("DB_SERVICE_HOST".to_owned(), "10.0.0.9".to_owned())].into();
        let scope =
            Scope { pod: &pod, sources: &sources, allocatable: &Resources::default(), services: &services };
        environment(scope, &pod.spec.containers[0])
    }

    fn shown(container: Value) -> String {
        let shown = |variables: BTreeMap<String, String>| {
            let pairs = variables.into_iter().map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join(" ")
        };
        resolved(container).map_or_else(|why| why, shown)
    }

    #[test]
    fn variables_are_resolved_in_order() {
        let from = |kind: &str, name: &str, key: &str| json!({kind: {"name": name, "key": key}});
        let env = json!([
            {"name": "A", "value": "x"},
            {"name": "B", "value": "$(A)$(NONE)$$(A)-$(DB_SERVICE_HOST)"},
            {"name": "C", "valueFrom": from("configMapKeyRef", "conf", "a")},
            {"name": "D", "valueFrom": from("secretKeyRef", "pass", "word")},
            {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "F", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "no", "optional": true}}},
        ]);
        let expected = "A=x B=x$(NONE)$(A)-10.0.0.9 C=1 D=secret DB_SERVICE_HOST=10.0.0.9 E=p";
        assert_eq!(shown(json!({"name": "c", "env": env})), expected);
    }

    #[test]
    fn all_keys_of_a_source_become_variables_and_single_ones_win() {
        let env_from = json!([{"prefix": "P_", "configMapRef": {"name": "conf"}}, {"secretRef": {"name": "pass"}},
                              {"configMapRef": {"name": "none", "optional": true}}]);
        let container = json!({"name": "c", "envFrom": env_from, "env": [{"name": "P_a", "value": "over"}]});
        assert_eq!(shown(container), "DB_SERVICE_HOST=10.0.0.9 P_a=over P_b=2 word=secret");
    }

    #[test]
    fn missing_sources_are_reported_as_a_kubelet_reports_them() {
        let from = |kind: &str, name: &str, key: &str| json!({"name": "c", "env": [{"name": "A", "valueFrom": {kind: {"name": name, "key": key}}}]});
        assert_eq!(shown(from("configMapKeyRef", "conf", "no")), "couldn't find key no in ConfigMap ns/conf");
        assert_eq!(shown(from("secretKeyRef", "none", "no")), "secret \"none\" not found");
    }

    #[test]
    fn variables_take_no_more_than_their_bound() {
        let variable =
            |at: u32| json!({"name": format!("V{at}"), "value": format!("$(V{0})$(V{0})", at - 1)});
        let mut env = vec![json!({"name": "V0", "value": "0123456789"})];
        env.extend((1..=12).map(variable));
        let values = resolved(json!({"name": "c", "env": env})).expect("few variables");
        assert_eq!(values["V12"].len(), 10 << 12);
        env.extend((13..64).map(variable));
        let error = Err("the environment variables of the container take more than 1048576 bytes".to_owned());
        assert_eq!(resolved(json!({"name": "c", "env": env})), error);
        let from = json!({"configMapKeyRef": {"name": "conf", "key": "a"}});
        let env: Vec<Value> = (0..20_000).map(|_| json!({"name": "A", "valueFrom": from})).collect();
        assert_eq!(resolved(json!({"name": "c", "env": env})), error);
    }

    #[test]
    fn texts_are_expanded_up_to_their_bound() {
        let expanded = |text: &str, most: usize| expand(text, most, |_| Some("0123456789"));
        assert_eq!(expanded("$(A)$(A)", 20).as_deref(), Some("01234567890123456789"));
        assert_eq!((expanded("$(A)$(A)", 19), expanded("$(A)xx", 11)), (None, None));
        // Would take minutes if each looked for its end.
        let open = "$(".repeat(500_000);
        assert_eq!(expanded(&open, 1 << 20), Some(open));
    }

    #[test]
    fn services_have_the_variables_of_docker_links() {
        let pod = pod_of(json!({"metadata": {"name": "p", "namespace": "ns"}}));
        let service = |name: &str, namespace: &str, ip: &str| -> Service {
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterIP": ip, "ports": [{"name": "http-web", "port": 80}]}}))
            .expect("a service")
        };
        let services = [
            service("my-db", "ns", "10.0.0.2"),
            service("x", "other", "10.0.0.3"),
            service("h", "ns", "None"),
        ];
        let variables = of_services(&pod, &services);
        let expected = [
            ("MY_DB_PORT", "tcp://10.0.0.2:80"),
            ("MY_DB_PORT_80_TCP", "tcp://10.0.0.2:80"),
            ("MY_DB_PORT_80_TCP_ADDR", "10.0.0.2"),
            ("MY_DB_PORT_80_TCP_PORT", "80"),
            ("MY_DB_PORT_80_TCP_PROTO", "tcp"),
            ("MY_DB_SERVICE_HOST", "10.0.0.2"),
            ("MY_DB_SERVICE_PORT", "80"),
            ("MY_DB_SERVICE_PORT_HTTP_WEB", "80"),
        ];
        let shown: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(shown, expected);
        assert!(shown.iter().skip(1).all(|(name, _)| may_be_of_a_service(name)));
        assert!(!may_be_of_a_service("PASSWORD") && !may_be_of_a_service("HTTP_PORT"));
    }
}
