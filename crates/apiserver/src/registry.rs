//! The served kinds, by path. A snapshot is immutable; a change swaps in a new one, so a request sees one consistent
//! set of kinds from beginning to end.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::RwLock;
use setpoint_store::{Key, Range, Resource};

use crate::custom::compare_versions;
use crate::discovery::aggregated::Aggregated;
use crate::kind::{FieldSelector, Kind};
use crate::metrics;
use crate::openapi::OpenApi;
use crate::schema::{Schema, Target};
use crate::status::Named;

/// A group, version and resource: identifies a collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvr {
    pub group: String,
    pub version: String,
    pub resource: String,
}

impl Gvr {
    pub fn new(group: impl Into<String>, version: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }
}

/// The error for a kind with an unknown schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no schema named {0:?}")]
pub struct UnknownSchema(pub String);

/// A kind as served: its entry, and derived data.
pub struct Served {
    pub kind: Kind,
    /// The store's resource of its objects.
    pub resource: Resource,
    /// The schema of its objects.
    pub target: Target,
    /// The prefix of every stored object of this kind: `{"kind":"Pod","apiVersion":"v1",`.
    pub head: Bytes,
    /// Its metrics.
    pub(crate) measured: metrics::KindMetrics,
    /// The kind that its objects are stored as, if it is another one.
    stored: Option<Arc<Served>>,
}

impl Served {
    pub(crate) fn new(kind: Kind, stored: Option<Arc<Self>>) -> Result<Self, UnknownSchema> {
        let custom = kind.custom.as_deref();
        let schema = match custom {
            Some(custom) => Some(custom.types.clone()),
            None => Schema::built_in(&kind.schema),
        };
        let schema = schema.ok_or_else(|| UnknownSchema(kind.schema.clone()))?;
        let stored_version =
            custom.map_or_else(|| kind.api_version(), |custom| custom.storage_api_version().to_owned());
        let custom = custom.map(|custom| custom.schema.clone());
        let (group, version) = (kind.group.clone(), kind.version.clone());
        let target = Target { schema, group, version, kind: kind.kind.clone(), custom };
        let head = format!(r#"{{"kind":{:?},"apiVersion":{stored_version:?},"#, kind.kind);
        let resource = Resource::new(kind.stored_as.as_str());
        let measured = metrics::KindMetrics::default();
        Ok(Self { resource, target, head: head.into(), measured, kind, stored })
    }

    /// Returns the kind that its objects are stored as.
    pub fn stored(&self) -> &Self {
        self.stored.as_deref().unwrap_or(self)
    }

    /// Returns the field selectors of the stored kind, whose values are among a record's facts.
    pub fn stored_selectors(&self) -> &[FieldSelector] {
        &self.stored().kind.field_selectors
    }

    /// Returns the store key of an object.
    pub fn key(&self, namespace: Option<&str>, name: &str) -> Key {
        match namespace.filter(|_| self.kind.is_namespaced()) {
            Some(namespace) => self.resource.key(format!("{namespace}/{name}")),
            None => self.resource.key(name),
        }
    }

    /// Returns the range of a namespace's objects, or of all objects.
    pub fn range(&self, namespace: Option<&str>) -> Range {
        match namespace.filter(|_| self.kind.is_namespaced()) {
            Some(namespace) => self.resource.under(format!("{namespace}/")),
            None => self.resource.all(),
        }
    }

    /// Returns the kind's name in messages: its plural.
    pub fn named(&self) -> Named<'_> {
        Named::resource(&self.kind)
    }
}

/// A snapshot of all served kinds.
#[derive(Default)]
pub struct Registry {
    groups: BTreeMap<String, Group>,
    /// The OpenAPI documents of these kinds, built on first use.
    openapi: OnceLock<OpenApi>,
    /// The discovery documents of the core group and of all others, built on first use.
    aggregated: [OnceLock<Aggregated>; 2],
}

/// The versions of a group, in order of preference.
#[derive(Clone, Default)]
pub struct Group {
    pub versions: Vec<Version>,
}

/// The resources of a group version, by plural.
#[derive(Clone)]
pub struct Version {
    pub name: String,
    pub resources: BTreeMap<String, Arc<Served>>,
}

impl Registry {
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Result<Self, UnknownSchema> {
        let mut registry = Self::default();
        let (stored, converted): (Vec<_>, Vec<_>) =
            kinds.into_iter().partition(|kind| kind.conversion.is_none());
        for kind in stored.into_iter().chain(converted) {
            registry.add(kind)?;
        }
        Ok(registry)
    }

    /// Adds a kind, or replaces the one with its group, version and plural. A kind that is stored as another must be
    /// added after it.
    pub fn add(&mut self, kind: Kind) -> Result<(), UnknownSchema> {
        let stored = kind.conversion.is_some().then(|| self.stored_as(&kind.stored_as)).flatten();
        let served = Arc::new(Served::new(kind, stored)?);
        let kind = &served.kind;
        let group = self.groups.entry(kind.group.clone()).or_default();
        let version = match group.versions.iter().position(|version| version.name == kind.version) {
            Some(at) => &mut group.versions[at],
            None => {
                group.versions.push(Version { name: kind.version.clone(), resources: BTreeMap::new() });
                group.versions.last_mut().expect("pushed above")
            }
        };
        version.resources.insert(kind.plural.clone(), served);
        (self.openapi, self.aggregated) = Default::default();
        Ok(())
    }

    /// Returns these kinds plus custom ones. Built-in kinds are unaffected; the versions of a custom group are sorted
    /// by stability.
    pub(crate) fn with_custom(&self, custom: impl Iterator<Item = Arc<Served>>) -> Self {
        let mut groups: BTreeMap<String, Group> = self.groups.clone();
        // CRDs cannot add to built-in group versions.
        for served in custom.filter(|served| self.version(&served.kind.group, &served.kind.version).is_none())
        {
            let kind = &served.kind;
            let group = groups.entry(kind.group.clone()).or_default();
            let at = group.versions.iter().position(|version| version.name == kind.version);
            let at = at.unwrap_or_else(|| {
                group.versions.push(Version { name: kind.version.clone(), resources: BTreeMap::new() });
                group.versions.len() - 1
            });
            group.versions[at].resources.entry(kind.plural.clone()).or_insert(served);
        }
        for (_, group) in groups.iter_mut().filter(|(name, _)| !self.groups.contains_key(*name)) {
            group.versions.sort_by(|a, b| compare_versions(&b.name, &a.name));
        }
        Self { groups, ..Self::default() }
    }

    /// Whether a group version is built in.
    pub fn has_built_in(&self, group: &str, version: &str) -> bool {
        self.version(group, version)
            .is_some_and(|version| version.resources.values().any(|served| served.kind.custom.is_none()))
    }

    /// Whether a group has built-in kinds in any version.
    pub fn has_built_in_group(&self, group: &str) -> bool {
        let mut versions = self.group(group).into_iter().flat_map(|group| &group.versions);
        versions.any(|version| self.has_built_in(group, &version.name))
    }

    fn stored_as(&self, resource: &str) -> Option<Arc<Served>> {
        self.all()
            .find(|served| served.kind.stored_as == resource && served.kind.conversion.is_none())
            .cloned()
    }

    /// Returns the OpenAPI documents of these kinds.
    pub fn openapi(&self) -> &OpenApi {
        self.openapi.get_or_init(|| OpenApi::new(self.all().cloned()))
    }

    /// Returns the discovery document of the core group, or of all others.
    pub(crate) fn aggregated(&self, core: bool) -> &Aggregated {
        self.aggregated[usize::from(core)].get_or_init(|| Aggregated::new(self, core, &[]))
    }

    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (name.as_str(), group))
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    pub fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?.versions.iter().find(|candidate| candidate.name == version)
    }

    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.version(group, version)?.resources.get(plural)
    }

    pub fn get(&self, gvr: &Gvr) -> Option<&Arc<Served>> {
        self.resource(&gvr.group, &gvr.version, &gvr.resource)
    }

    /// Returns all served kinds.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.groups.values().flat_map(|group| &group.versions).flat_map(|version| version.resources.values())
    }

    /// Returns the kind with this name in a group version.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Served>> {
        self.version(group, version)?.resources.values().find(|served| served.kind.kind == kind)
    }
}

/// The current registry. Reading it costs a pointer copy.
#[derive(Default)]
pub struct CurrentRegistry(RwLock<Arc<Registry>>);

impl CurrentRegistry {
    pub fn new(registry: Registry) -> Self {
        Self(RwLock::new(Arc::new(registry)))
    }

    pub fn snapshot(&self) -> Arc<Registry> {
        self.0.read().clone()
    }

    /// Swaps in other kinds. Requests in progress continue with the ones they found.
    pub fn publish(&self, registry: Registry) {
        *self.0.write() = Arc::new(registry);
    }
}
