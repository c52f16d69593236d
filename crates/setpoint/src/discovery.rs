//! API discovery: every served resource with its verbs, and the preferred version of each.
//!
//! Takes two requests with aggregated discovery, or one more per group and version if the server does not support it.
//! If a part of the API cannot be discovered, for example because the server behind an aggregated API is down, it is
//! reported as a [`Failure`], not as a missing resource. Before acting on the absence of a resource, check
//! [`Discovered::failed`].

use std::collections::BTreeMap;
use std::fmt;

use futures::{StreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Client, ClientError, Kind};

/// Requests aggregated discovery, with a fallback for servers that do not support it.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Concurrent requests when every version is queried separately: enough to hide a round trip, too few to load the
/// server.
const CONCURRENCY: usize = 8;

/// The result of discovery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Discovered {
    resources: Vec<Resource>,
    failures: Failures,
    /// The other names of resources, singular and short, by group and plural name.
    names: BTreeMap<(String, String), Vec<String>>,
}

/// A served resource in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its kind.
    pub kind: Kind,
    /// The supported verbs: `get`, `list`, `watch`, `delete`, `deletecollection`, …
    pub verbs: Vec<String>,
    /// Whether this is the version the server prefers.
    pub preferred: bool,
}

/// The group versions that could not be discovered, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures(Vec<Failure>);

/// A group version that could not be discovered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The group version, for example `apps/v1`.
    pub api_version: String,
    /// The reason.
    pub why: String,
}

/// Discovers what a server serves.
pub async fn discover(client: &Client) -> Result<Discovered, ClientError> {
    let core = match ask(client, "/api").await {
        // A server with only custom resources has no core group.
        Err(error) if error.code() == Some(404) => Root::default(),
        answer => answer?,
    };
    let named = ask(client, "/apis").await?;
    let mut found = DiscoveryState::default();
    for root in [core, named] {
        match root.kind.as_str() {
            "APIGroupDiscoveryList" => root.items.iter().for_each(|group| found.aggregated(group)),
            _ => found.per_version(client, root.groups()).await,
        }
    }
    Ok(found.into_discovered())
}

async fn ask<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, ClientError> {
    let answer = client.read(path, AGGREGATED).await?;
    serde_json::from_slice(&answer).map_err(|error| ClientError::InvalidResponse(Box::new(error)))
}

impl Discovered {
    /// Builds a discovery result from kinds in their preferred versions, with the given verbs, and from group versions
    /// that failed, with the reasons.
    pub fn of<'a>(
        served: impl IntoIterator<Item = (Kind, Vec<String>)>,
        failed: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut found = DiscoveryState::default();
        for (kind, verbs) in served {
            let version = kind.version().to_owned();
            found.add(kind, verbs, &version);
        }
        for (api_version, why) in failed {
            found.failures.push(Failure { api_version: api_version.into(), why: why.into() });
        }
        found.into_discovered()
    }

    /// Returns the preferred version of each resource.
    pub fn preferred(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|resource| resource.preferred)
    }

    /// Returns all resources in all versions, in the server's order.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Returns the served kind with this `apiVersion` and `kind`.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.resources.iter().map(|resource| &resource.kind).find(|served| served.is_named(api_version, kind))
    }

    /// Resolves a resource name as kubectl does: a plural, singular or short name or a kind, in any case, optionally
    /// followed by the group or by version and group. Built-in groups come first, in the server's order.
    ///
    /// ```
    /// use setpoint::Kind;
    /// use setpoint::discovery::Discovered;
    /// let sets = Kind::new("apps", "v1", "ReplicaSet", "replicasets", true);
    /// let found = Discovered::of([(sets.clone(), vec!["list".to_owned()])], []);
    /// for name in ["replicasets", "ReplicaSet", "replicasets.apps", "replicaset.v1.apps"] {
    ///     assert_eq!(found.named(name).map(|resource| &resource.kind), Some(&sets));
    /// }
    /// assert!(found.named("pods").is_none());
    /// ```
    pub fn named(&self, name: &str) -> Option<&Resource> {
        let name = name.to_lowercase();
        let mut parts = name.splitn(2, '.');
        let (word, rest) = (parts.next().unwrap_or_default(), parts.next());
        let is_called = |resource: &&Resource| self.is_called(resource, word);
        let Some(rest) = rest else { return self.preferred().find(is_called) };
        let is_of_group = |resource: &&Resource| resource.kind.group() == rest;
        let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
        let is_of_version =
            |resource: &&Resource| (resource.kind.version(), resource.kind.group()) == (version, group);
        let by_group = self.preferred().filter(is_called).find(is_of_group);
        by_group.or_else(|| self.resources.iter().filter(is_called).find(is_of_version))
    }

    fn is_called(&self, resource: &Resource, word: &str) -> bool {
        let kind = &resource.kind;
        let names = self.names.get(&(kind.group().to_owned(), kind.plural().to_owned()));
        kind.plural() == word
            || kind.kind().to_lowercase() == word
            || names.is_some_and(|names| names.iter().any(|name| name == word))
    }

    /// Returns the group versions that could not be discovered.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Returns whether it is unknown if this kind is served, because its group version could not be discovered.
    pub fn failed(&self, kind: &Kind) -> bool {
        self.failures.0.iter().any(|failure| kind.is_named(&failure.api_version, kind.kind()))
    }

    /// Returns whether a version of this group could not be discovered. It may serve any kind of the group.
    pub fn failed_group(&self, group: &str) -> bool {
        let group_of =
            |api_version: &str| api_version.split_once('/').map_or("", |(group, _)| group) == group;
        self.failures.0.iter().any(|failure| group_of(&failure.api_version))
    }
}

impl Resource {
    /// Returns whether the resource supports all of these verbs.
    pub fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|supported| supported == verb))
    }
}

impl Failures {
    /// Returns whether everything was discovered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of group versions that could not be discovered.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unable to retrieve the complete list of server APIs: ")?;
        for (nth, Failure { api_version, why }) in self.0.iter().enumerate() {
            let separator = if nth == 0 { "" } else { ", " };
            write!(f, "{separator}{api_version}: {why}")?;
        }
        Ok(())
    }
}

/// The resources found so far.
#[derive(Default)]
struct DiscoveryState {
    resources: Vec<Resource>,
    failures: Vec<Failure>,
    names: BTreeMap<(String, String), Vec<String>>,
    /// The index in `resources` of the version preferred so far, by group and plural name.
    preferred: BTreeMap<(String, String), usize>,
}

impl DiscoveryState {
    fn aggregated(&mut self, group: &AggregatedGroup) {
        let name = &group.metadata.name;
        let mut preferred = None;
        for version in &group.versions {
            if version.freshness == "Stale" {
                let api_version = api_version(name, &version.version);
                let why = format!("stale GroupVersion discovery: {api_version}");
                self.failures.push(Failure { api_version, why });
                continue;
            }
            let preferred = *preferred.get_or_insert(version.version.as_str());
            for resource in
                version.resources.iter().filter(|resource| !resource.response_kind.kind.is_empty())
            {
                let (kind, namespaced) = (&resource.response_kind.kind, resource.scope == "Namespaced");
                self.call(name, &resource.resource, &resource.singular_resource, &resource.short_names);
                let kind = Kind::new(name, &version.version, kind, &resource.resource, namespaced);
                self.add(kind, resource.verbs.clone(), preferred);
            }
        }
    }

    async fn per_version(&mut self, client: &Client, groups: Vec<LegacyGroup>) {
        let versions = groups.into_iter().flat_map(LegacyGroup::into_versions);
        let answers = stream::iter(versions.map(|version| async {
            let answer = ask::<ResourceList>(client, &version.path()).await;
            (version, answer)
        }));
        let mut answers = answers.buffered(CONCURRENCY);
        while let Some((version, answer)) = answers.next().await {
            match answer {
                Ok(list) => self.listed(&version, list),
                Err(error) => {
                    self.failures.push(Failure { api_version: version.api_version(), why: error.to_string() })
                }
            }
        }
    }

    fn listed(&mut self, version: &LegacyVersion, list: ResourceList) {
        // A name with a slash is a subresource.
        for resource in list.resources.into_iter().filter(|resource| !resource.name.contains('/')) {
            let LegacyResource { name, kind, namespaced, verbs, singular_name, short_names } = resource;
            self.call(&version.group, &name, &singular_name, &short_names);
            let kind = Kind::new(&version.group, &version.version, &kind, &name, namespaced);
            self.add(kind, verbs, &version.preferred);
        }
    }

    /// Remembers the other names of a resource.
    fn call(&mut self, group: &str, plural: &str, singular: &str, short: &[String]) {
        let names = self.names.entry((group.to_owned(), plural.to_owned())).or_default();
        for name in std::iter::once(singular).chain(short.iter().map(String::as_str)) {
            if !name.is_empty() && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }

    /// Adds a version of a resource. The first one is the preferred version until the group's preferred version turns
    /// out to have the resource too.
    fn add(&mut self, kind: Kind, verbs: Vec<String>, preferred_version: &str) {
        let name = (kind.group().to_owned(), kind.plural().to_owned());
        let position = self.resources.len();
        let before = self.preferred.get(&name).copied();
        let preferred = before.is_none() || kind.version() == preferred_version;
        if preferred {
            if let Some(before) = before {
                self.resources[before].preferred = false;
            }
            self.preferred.insert(name, position);
        }
        self.resources.push(Resource { kind, verbs, preferred });
    }

    fn into_discovered(mut self) -> Discovered {
        self.failures.sort();
        Discovered { resources: self.resources, failures: Failures(self.failures), names: self.names }
    }
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The response of `/api` and `/apis`, in any of its three forms.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Root {
    kind: String,
    /// Aggregated discovery.
    items: Vec<AggregatedGroup>,
    /// Plain `/apis`.
    groups: Vec<LegacyGroup>,
    /// Plain `/api`.
    versions: Vec<String>,
}

impl Root {
    fn groups(self) -> Vec<LegacyGroup> {
        let Some(preferred) = self.versions.first().cloned() else { return self.groups };
        let versions = self.versions.into_iter().map(|version| VersionName { version }).collect();
        vec![LegacyGroup {
            name: String::new(),
            versions,
            preferred_version: VersionName { version: preferred },
        }]
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AggregatedGroup {
    metadata: Named,
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AggregatedVersion {
    version: String,
    freshness: String,
    resources: Vec<AggregatedResource>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    singular_resource: String,
    short_names: Vec<String>,
    response_kind: ResponseKind,
    scope: String,
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseKind {
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LegacyGroup {
    name: String,
    versions: Vec<VersionName>,
    preferred_version: VersionName,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VersionName {
    version: String,
}

struct LegacyVersion {
    group: String,
    version: String,
    preferred: String,
}

impl LegacyGroup {
    fn into_versions(self) -> impl Iterator<Item = LegacyVersion> {
        let (group, preferred) = (self.name, self.preferred_version.version);
        self.versions.into_iter().map(move |VersionName { version }| LegacyVersion {
            group: group.clone(),
            version,
            preferred: preferred.clone(),
        })
    }
}

impl LegacyVersion {
    fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    fn path(&self) -> String {
        let root = if self.group.is_empty() { "/api/" } else { "/apis/" };
        format!("{root}{}", self.api_version())
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceList {
    resources: Vec<LegacyResource>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LegacyResource {
    name: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
    singular_name: String,
    short_names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};

    /// Creates a client for a server that answers only these paths.
    fn serving(answers: &[(&'static str, Value)]) -> Client {
        let answers: BTreeMap<_, _> = answers.iter().map(|(path, body)| (*path, body.to_string())).collect();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answers.get(request.uri().path()).cloned();
            async move {
                let status = if answer.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
                let missing =
                    || json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"});
                let body = answer.unwrap_or_else(|| missing().to_string());
                let mut response = Response::new(Body::from(body.into_bytes()));
                *response.status_mut() = status;
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        Client::new(kube::Client::new(service, "default"))
    }

    fn aggregated(items: Value) -> Value {
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
    }

    fn resource(plural: &str, kind: &str) -> Value {
        json!({
            "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": "Namespaced", "verbs": ["delete", "list", "watch"],
            "subresources": [{"subresource": "status", "verbs": ["get"]}],
        })
    }

    fn names(discovered: &Discovered) -> Vec<String> {
        let starred = |resource: &Resource| if resource.preferred { "*" } else { "" };
        discovered.resources().iter().map(|found| format!("{}{}", found.kind, starred(found))).collect()
    }

    #[tokio::test]
    async fn a_resource_is_preferred_in_its_groups_first_version_that_has_it() {
        let client = serving(&[
            (
                "/api",
                aggregated(json!([{"metadata": {}, "versions": [
                {"version": "v1", "freshness": "Current", "resources": [resource("pods", "Pod")]}]}])),
            ),
            (
                "/apis",
                aggregated(json!([{"metadata": {"name": "autoscaling"}, "versions": [
                {"version": "v2", "freshness": "Current", "resources": [resource("scalers", "Scaler")]},
                {"version": "v1", "freshness": "Current",
                 "resources": [resource("scalers", "Scaler"), resource("olds", "Old")]}]}])),
            ),
        ]);
        let discovered = discover(&client).await.unwrap();
        assert_eq!(
            names(&discovered),
            ["Pod.v1*", "Scaler.autoscaling/v2*", "Scaler.autoscaling/v1", "Old.autoscaling/v1*"]
        );
        assert!(discovered.failures().is_empty());
        assert_eq!(discovered.kind("autoscaling/v1", "Scaler").unwrap().version(), "v1");
        assert!(discovered.kind("v1", "Scaler").is_none());
    }

    #[tokio::test]
    async fn a_stale_version_is_a_failure_and_not_an_absence() {
        let client = serving(&[
            ("/api", aggregated(json!([]))),
            (
                "/apis",
                aggregated(json!([{"metadata": {"name": "metrics.k8s.io"}, "versions": [
                {"version": "v1", "freshness": "Stale", "resources": []}]}])),
            ),
        ]);
        let discovered = discover(&client).await.unwrap();
        let unknown = Kind::new("metrics.k8s.io", "v1", "Usage", "usages", true);
        assert!(discovered.failed(&unknown));
        assert!(!discovered.failed(&Kind::new("", "v1", "Pod", "pods", true)));
        assert_eq!(
            discovered.failures().to_string(),
            "unable to retrieve the complete list of server APIs: \
             metrics.k8s.io/v1: stale GroupVersion discovery: metrics.k8s.io/v1"
        );
    }

    #[tokio::test]
    async fn without_aggregated_discovery_each_version_is_fetched() {
        let pods = json!({"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["list"]});
        let status = json!({"name": "pods/status", "kind": "Pod", "namespaced": true, "verbs": ["get"]});
        let client = serving(&[
            ("/api", json!({"kind": "APIVersions", "versions": ["v1"]})),
            ("/api/v1", json!({"kind": "APIResourceList", "resources": [pods, status]})),
            (
                "/apis",
                json!({"kind": "APIGroupList", "groups": [
                {"name": "gone.example.com", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
                {"name": "apps", "versions": [{"version": "v1beta1"}, {"version": "v1"}],
                 "preferredVersion": {"version": "v1"}}]}),
            ),
            (
                "/apis/apps/v1beta1",
                json!({"resources": [{"name": "sets", "kind": "Set", "verbs": ["list"]}]}),
            ),
            ("/apis/apps/v1", json!({"resources": [{"name": "sets", "kind": "Set", "verbs": ["list"]}]})),
        ]);
        let discovered = discover(&client).await.unwrap();
        assert_eq!(names(&discovered), ["Pod.v1*", "Set.apps/v1beta1", "Set.apps/v1*"]);
        assert_eq!(discovered.failures().len(), 1);
        assert!(discovered.preferred().next().unwrap().supports(&["list"]));
        assert!(!discovered.preferred().next().unwrap().supports(&["list", "delete"]));
    }
}
