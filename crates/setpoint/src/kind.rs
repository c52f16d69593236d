//! API kinds, and the typed views through which controllers read objects.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

/// An API kind: group, version, kind, plural name and scope. Cheap to clone and compare.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(Arc<Names>);

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Names {
    group: String,
    version: String,
    kind: String,
    plural: String,
    namespaced: bool,
}

impl Kind {
    /// Creates a kind. `group` is empty for the core group.
    pub fn new(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self(Arc::new(Names {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced,
        }))
    }

    /// Returns the kind that a view decodes.
    pub fn of<V: View>() -> Self {
        V::kind()
    }

    /// Returns the API group, for example `apps`. Empty for the core group.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// Returns the version, for example `v1`.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Returns the kind's name, for example `Deployment`.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// Returns the plural name used in URLs, for example `deployments`.
    pub fn plural(&self) -> &str {
        &self.0.plural
    }

    /// Returns whether the kind is namespaced.
    pub fn namespaced(&self) -> bool {
        self.0.namespaced
    }

    /// Returns the `apiVersion`, for example `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.0.group.is_empty() {
            self.0.version.clone()
        } else {
            format!("{}/{}", self.0.group, self.0.version)
        }
    }

    /// Returns whether this kind has the given `apiVersion` and `kind`.
    pub fn is_named(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.0.kind == kind && self.0.version == version && self.0.group == group
    }

    /// Returns the path of the collection: `/api/v1/namespaces/{ns}/pods`, `/apis/apps/v1/replicasets`.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let root = if self.0.group.is_empty() { "/api/" } else { "/apis/" };
        let api_version = self.api_version();
        match namespace {
            Some(namespace) => format!("{root}{api_version}/namespaces/{namespace}/{}", self.0.plural),
            None => format!("{root}{api_version}/{}", self.0.plural),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.kind, self.api_version())
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A typed view of an object: the fields a controller needs, decoded from the cached bytes on first use and then kept
/// with the object.
///
/// Every typed resource from `k8s_openapi` or a `CustomResource` derive is a view of itself. To read only a few fields,
/// write a plain `Deserialize` struct and make it a view with [`view!`](crate::view). That takes a tenth of the memory
/// and time.
pub trait View: DeserializeOwned + Send + Sync + 'static {
    /// Returns the kind whose objects this view decodes.
    fn kind() -> Kind;
}

impl<K> View for K
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    K::Scope: Scope,
{
    fn kind() -> Kind {
        let (group, version, kind) = (K::group(&()), K::version(&()), K::kind(&()));
        Kind::new(&group, &version, &kind, &K::plural(&()), K::Scope::NAMESPACED)
    }
}

/// A [`View`] with all fields of its kind, as updates need. Types of `k8s_openapi` and of the `CustomResource` derive are,
/// and views of [`view!`](crate::view) are not. Implement it for a view that keeps the fields it does not know.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has some of the fields of its kind, and an update with it would delete the others",
    note = "apply the fields with `Api::apply`, or update the whole object"
)]
pub trait WholeView: View {}

impl<K> WholeView for K
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    K::Scope: Scope,
{
}

/// The scope of a resource, as a constant.
pub trait Scope {
    /// Whether the resource is namespaced.
    const NAMESPACED: bool;
}

impl Scope for k8s_openapi::NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scope for k8s_openapi::ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// Implements [`View`] for a struct with some of the fields of a kind.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct PodPhase { status: Status }
/// #[derive(serde::Deserialize, Default)]
/// struct Status { #[serde(default)] phase: String }
/// setpoint::view!(PodPhase of k8s_openapi::api::core::v1::Pod);
/// assert_eq!(setpoint::Kind::of::<PodPhase>().plural(), "pods");
/// ```
#[macro_export]
macro_rules! view {
    ($view:ident of $resource:ty) => {
        impl $crate::View for $view {
            fn kind() -> $crate::Kind {
                <$resource as $crate::View>::kind()
            }
        }
    };
}
