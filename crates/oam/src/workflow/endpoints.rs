//! The addresses of an application: those of its Services and Ingresses.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::component::StepError;
use crate::apply::identity::Identity;
use crate::names::{APP_CLUSTER, APP_COMPONENT, APP_NAME, APP_NAMESPACE, LOCAL_CLUSTER};
use crate::session::Session;

impl Session<'_> {
    /// Returns the endpoints of an application.
    pub(super) async fn service_endpoints(&self, app: &Value) -> Result<Value, StepError> {
        let text = |name: &str| app[name].as_str().unwrap_or_default().to_owned();
        let labels = format!("{APP_NAME}={},{APP_NAMESPACE}={}", text("name"), text("namespace"));
        let namespace = app["filter"]["clusterNamespace"].as_str().filter(|namespace| !namespace.is_empty());
        let mut found = Vec::new();
        for name in self.clusters_of_app(app).await? {
            let cluster = self.clusters.get(&name)?;
            for (api_version, kind) in [("networking.k8s.io/v1", "Ingress"), ("v1", "Service")] {
                let kind = cluster.kind(api_version, kind).await?;
                for mut object in cluster.list(&kind, namespace, Some(labels.clone())).await? {
                    object["apiVersion"] = api_version.into();
                    object["kind"] = kind.kind().into();
                    found.push(object);
                }
            }
        }
        let wanted = app["filter"]["components"].as_array();
        let is_wanted = |object: &&Value| {
            let component = &object["metadata"]["labels"][APP_COMPONENT];
            wanted.is_none_or(|wanted| wanted.is_empty() || wanted.contains(component))
        };
        let endpoints = found.iter().filter(is_wanted).flat_map(|object| match object["kind"].as_str() {
            Some("Ingress") => of_ingress(object),
            _ => of_service(object),
        });
        Ok(json!({"list": endpoints.collect::<Vec<Value>>()}))
    }

    /// Returns the clusters with objects of an application, according to its status: the requested one, or all.
    async fn clusters_of_app(&self, app: &Value) -> Result<BTreeSet<String>, StepError> {
        let apps = self.local().kind("core.oam.dev/v1beta1", "Application").await?;
        let of = Identity::of(&apps, &json!({"metadata": app}), &self.app.namespace);
        let known = self.local().get(&of).await?.unwrap_or_default();
        let applied = items(&known["status"]["appliedResources"]);
        let of_applied = applied.filter_map(|applied| applied["cluster"].as_str());
        let all = std::iter::once(LOCAL_CLUSTER).chain(of_applied);
        let wanted = app["filter"]["cluster"].as_str().filter(|cluster| !cluster.is_empty());
        Ok(all.filter(|name| wanted.is_none_or(|wanted| wanted == *name)).map(str::to_owned).collect())
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns an endpoint in KubeVela's format.
fn endpoint(object: &Value, endpoint: Value) -> Value {
    let meta = &object["metadata"];
    json!({
        "endpoint": endpoint,
        "cluster": meta["labels"][APP_CLUSTER].as_str().unwrap_or(LOCAL_CLUSTER),
        "component": meta["labels"][APP_COMPONENT],
        "ref": {
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "name": meta["name"], "namespace": meta["namespace"],
        },
    })
}

/// Addresses of load balancers come from outside; others have a name in the cluster.
fn of_service(service: &Value) -> Vec<Value> {
    let meta = &service["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let outer: Vec<String> = items(&service["status"]["loadBalancer"]["ingress"])
        .filter_map(|address| address["ip"].as_str().or(address["hostname"].as_str()).map(str::to_owned))
        .collect();
    let inner = outer.is_empty();
    let hosts =
        if inner { vec![format!("{}.{}", text(&meta["name"]), text(&meta["namespace"]))] } else { outer };
    let of_port = |port: &Value, host: &String| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let found = json!({
            "protocol": protocol, "appProtocol": port["appProtocol"].as_str().unwrap_or_default(),
            "host": host, "port": port["port"], "portName": text(&port["name"]), "path": "", "inner": inner,
        });
        endpoint(service, found)
    };
    items(&service["spec"]["ports"])
        .flat_map(|port| hosts.iter().map(|host| of_port(port, host)).collect::<Vec<_>>())
        .collect()
}

fn of_ingress(ingress: &Value) -> Vec<Value> {
    let spec = &ingress["spec"];
    let address = items(&ingress["status"]["loadBalancer"]["ingress"])
        .find_map(|address| address["ip"].as_str().or(address["hostname"].as_str()))
        .unwrap_or_default();
    let mut found = Vec::new();
    for rule in items(&spec["rules"]) {
        let host = rule["host"].as_str().unwrap_or(address);
        if host.is_empty() {
            continue;
        }
        let is_secure = items(&spec["tls"]).any(|tls| items(&tls["hosts"]).any(|name| name == host));
        let (protocol, port) = if is_secure { ("https", 443) } else { ("http", 80) };
        for path in items(&rule["http"]["paths"]) {
            let path = path["path"].as_str().unwrap_or("/");
            let one = json!({
                "protocol": "TCP", "appProtocol": protocol, "host": host, "port": port, "portName": "",
                "path": path, "inner": false,
            });
            found.push(endpoint(ingress, one));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(found: &[Value]) -> Vec<(String, i64, bool)> {
        let one = |found: &Value| {
            let endpoint = &found["endpoint"];
            (
                endpoint["host"].as_str().unwrap().to_owned(),
                endpoint["port"].as_i64().unwrap(),
                endpoint["inner"] == true,
            )
        };
        found.iter().map(one).collect()
    }

    #[test]
    fn services_and_ingresses_have_endpoints() {
        let mut service =
            json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}});
        assert_eq!(hosts(&of_service(&service)), [("web.shop".to_owned(), 80, true)]);
        service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        assert_eq!(hosts(&of_service(&service)), [("192.0.2.1".to_owned(), 80, false)]);
        let ingress = json!({"spec": {"tls": [{"hosts": ["a.example"]}], "rules": [
            {"host": "a.example", "http": {"paths": [{"path": "/x"}]}}, {"host": "b.example", "http": {"paths": [{}]}}]}});
        let expected = [("a.example".to_owned(), 443, false), ("b.example".to_owned(), 80, false)];
        assert_eq!(hosts(&of_ingress(&ingress)), expected);
    }
}
