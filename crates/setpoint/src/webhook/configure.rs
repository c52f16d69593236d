//! The webhook configurations, and the conversion of a CRD.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::difference::base64;
use super::{Purpose, Route, Webhooks};
use crate::{Key, Kind};

/// The address at which the API server reaches the webhooks.
///
/// ```
/// use setpoint::webhook::Endpoint;
/// let endpoint = Endpoint::service("shop", "operator");
/// assert_eq!(endpoint.host(), "operator.shop.svc");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Service in the cluster.
    Service {
        /// Its namespace and name.
        key: Key,
        /// Its port.
        port: u16,
    },
    /// A host and a port: `https://HOST:PORT`.
    Url {
        /// The host: a name or an IP address.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Endpoint {
    /// A Service on port 443.
    pub fn service(namespace: &str, name: &str) -> Self {
        Self::Service { key: Key::namespaced(namespace, name), port: 443 }
    }

    /// Returns the host name that the serving certificate must be valid for.
    pub fn host(&self) -> String {
        match self {
            Self::Service { key, .. } => {
                format!("{}.{}.svc", key.name(), key.namespace().unwrap_or_default())
            }
            Self::Url { host, .. } => host.clone(),
        }
    }

    /// Returns the `clientConfig` of a path.
    fn client_config(&self, path: &str, ca: Option<&str>) -> Value {
        let mut config = match self {
            Self::Service { key, port } => {
                let (namespace, name) = (key.namespace(), key.name());
                json!({"service": {"namespace": namespace, "name": name, "path": path, "port": port}})
            }
            Self::Url { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                json!({"url": format!("https://{host}:{port}{path}")})
            }
        };
        if let Some(ca) = ca {
            config["caBundle"] = base64(ca.as_bytes()).into();
        }
        config
    }
}

impl Webhooks {
    /// Returns the webhook configurations with their kinds, at most one of each kind. `ca` is the CA bundle as PEM;
    /// `None` leaves the field to another program, such as cert-manager.
    pub fn configurations(&self, endpoint: &Endpoint, ca: Option<&str>) -> Vec<(Kind, Value)> {
        let both = [
            (Purpose::Mutate, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            (Purpose::Validate, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ];
        let made = both.into_iter().filter_map(|(purpose, kind, plural)| {
            let routes = self.routes.iter().filter(|route| route.purpose == purpose);
            let webhooks: Vec<Value> = routes.map(|route| route.webhook(endpoint, ca)).collect();
            let kind = Kind::new("admissionregistration.k8s.io", "v1", kind, plural, false);
            (!webhooks.is_empty())
                .then(|| (kind, json!({"metadata": {"name": self.name}, "webhooks": webhooks})))
        });
        made.map(|(kind, mut object)| {
            object["apiVersion"] = kind.api_version().into();
            object["kind"] = kind.kind().into();
            (kind, object)
        })
        .collect()
    }

    /// Returns the fields of CRDs that make the API server convert with these webhooks.
    pub(super) fn conversions(&self, endpoint: &Endpoint, ca: Option<&str>) -> Vec<Value> {
        let routes = self.routes.iter().filter(|route| route.purpose == Purpose::Convert);
        let conversion = |route: &Route| {
            let name = format!("{}.{}", route.kind.plural(), route.kind.group());
            let client = endpoint.client_config(&route.path(), ca);
            let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
            let conversion = json!({"strategy": "Webhook", "webhook": webhook});
            json!({"metadata": {"name": name}, "spec": {"conversion": conversion}})
        };
        routes.map(conversion).collect()
    }

    /// Returns a CRD that converts with these webhooks, if they convert its kind.
    pub fn converting(
        &self,
        definition: CustomResourceDefinition,
        endpoint: &Endpoint,
        ca: Option<&str>,
    ) -> CustomResourceDefinition {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let conversions = self.conversions(endpoint, ca);
        let found = conversions.into_iter().find(|fields| fields["metadata"]["name"] == name.as_str());
        let conversion =
            found.and_then(|mut fields| serde_json::from_value(fields["spec"]["conversion"].take()).ok());
        let mut converting = definition;
        if conversion.is_some() {
            converting.spec.conversion = conversion;
        }
        converting
    }
}

impl Route {
    /// Returns an entry of a webhook configuration.
    fn webhook(&self, endpoint: &Endpoint, ca: Option<&str>) -> Value {
        let (kind, path) = (&self.kind, self.path());
        // `validate.widgets.example.com`: the reversed path without the version.
        let group = if kind.group().is_empty() { "core" } else { kind.group() };
        let verb = path.split('/').nth(1).unwrap_or_default();
        let number = if self.nth > 1 { format!("-{}", self.nth) } else { String::new() };
        json!({
            "name": format!("{verb}{number}.{}.{}.{group}", kind.version(), kind.plural()),
            "clientConfig": endpoint.client_config(&path, ca),
            "rules": [{
                "apiGroups": [kind.group()],
                "apiVersions": [kind.version()],
                "resources": [kind.plural()],
                "operations": self.operations,
                "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" },
            }],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": 10,
        })
    }
}
