//! The handlers that webhook authors write: defaulters, validators and converters.

use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Key, View};

/// The operation that a user requests.
///
/// ```
/// use setpoint::webhook::Operation;
/// let operation: Operation = serde_json::from_str("\"DELETE\"").unwrap();
/// assert_eq!(operation, Operation::Delete);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// Create it.
    Create,
    /// Update or patch it.
    Update,
    /// Delete it.
    Delete,
    /// Connect to it.
    Connect,
}

impl Operation {
    pub(super) const WRITES: [Self; 2] = [Self::Create, Self::Update];
}

/// The request under review.
///
/// ```
/// use setpoint::webhook::AdmissionRequest;
/// fn is_ours(request: &AdmissionRequest) -> bool {
///     request.user == "system:serviceaccount:shop:operator" && !request.dry_run
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AdmissionRequest {
    /// The requested operation.
    pub operation: Operation,
    /// The namespace and name. The name is empty if the API server has yet to generate it.
    pub key: Key,
    /// The user.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Whether this is a dry run. A webhook must then have no side effects.
    pub dry_run: bool,
}

/// An allowed request, possibly with warnings that kubectl shows. `()` is one without.
///
/// ```
/// use setpoint::webhook::Allowed;
/// let allowed = Allowed::with_warning("spec.size is deprecated: use spec.replicas");
/// assert_eq!(allowed.warnings.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The warnings.
    pub warnings: Vec<String>,
}

impl Allowed {
    /// Allows the request with a warning.
    pub fn with_warning(warning: impl Into<String>) -> Self {
        Self { warnings: vec![warning.into()] }
    }
}

impl From<()> for Allowed {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Why a request is denied.
///
/// ```
/// use setpoint::webhook::Denied;
/// assert_eq!(Denied::from("not on Fridays").code, 403);
/// assert_eq!(Denied::invalid("spec.size", "must be positive").to_string(), "spec.size: must be positive");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denied {
    /// The HTTP status code.
    pub code: u16,
    /// The message for the user.
    pub message: String,
    /// The invalid field. Empty if there is none.
    pub field: String,
}

impl Denied {
    /// Denies the request because a field is invalid. `why` says what was expected.
    pub fn invalid(field: &str, why: impl AsRef<str>) -> Self {
        Self { code: 422, message: format!("{field}: {}", why.as_ref()), field: field.into() }
    }
}

impl From<&str> for Denied {
    fn from(message: &str) -> Self {
        Self::from(message.to_owned())
    }
}

impl From<String> for Denied {
    fn from(message: String) -> Self {
        Self { code: 403, message, field: String::new() }
    }
}

/// Sets defaults in an object. Any `Fn(&mut K)` is a defaulter.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::webhook::{AdmissionRequest, Defaulter, Denied};
/// struct Author;
/// impl Defaulter<ConfigMap> for Author {
///     async fn default(&self, map: &mut ConfigMap, request: &AdmissionRequest) -> Result<(), Denied> {
///         let annotations = map.metadata.annotations.get_or_insert_default();
///         annotations.entry("example.com/author".into()).or_insert(request.user.clone());
///         Ok(())
///     }
/// }
/// ```
pub trait Defaulter<K>: Send + Sync + 'static {
    /// Sets the defaults. Must be idempotent: called again with its own result, it changes nothing.
    fn default(
        &self,
        object: &mut K,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<(), Denied>> + Send;
}

impl<K: Send, F: Fn(&mut K) + Send + Sync + 'static> Defaulter<K> for F {
    async fn default(&self, object: &mut K, _: &AdmissionRequest) -> Result<(), Denied> {
        self(object);
        Ok(())
    }
}

/// Checks an object before it is stored. Any `Fn(&K) -> Result<(), Denied>` is a validator of creates and updates.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::webhook::{AdmissionRequest, Allowed, Denied, Operation, Validator};
/// struct Kept;
/// impl Validator<ConfigMap> for Kept {
///     const OPERATIONS: &'static [Operation] = &[Operation::Delete];
///     async fn validate(&self, _: Option<&ConfigMap>, old: Option<&ConfigMap>, _: &AdmissionRequest)
///         -> Result<Allowed, Denied> {
///         match old.and_then(|map| map.metadata.annotations.as_ref()?.get("example.com/keep")) {
///             Some(why) => Err(Denied::from(format!("it has to stay: {why}"))),
///             None => Ok(Allowed::default()),
///         }
///     }
/// }
/// ```
pub trait Validator<K>: Send + Sync + 'static {
    /// The operations that are checked (default: create and update).
    const OPERATIONS: &'static [Operation] = &Operation::WRITES;

    /// Checks a request. Deletes have no new object, and creates have no old one.
    fn validate(
        &self,
        new: Option<&K>,
        old: Option<&K>,
        request: &AdmissionRequest,
    ) -> impl Future<Output = Result<Allowed, Denied>> + Send;
}

impl<K, F, A> Validator<K> for F
where
    K: Sync,
    F: Fn(&K) -> Result<A, Denied> + Send + Sync + 'static,
    A: Into<Allowed>,
{
    async fn validate(
        &self,
        new: Option<&K>,
        _: Option<&K>,
        _: &AdmissionRequest,
    ) -> Result<Allowed, Denied> {
        new.map_or(Ok(Allowed::default()), |object| self(object).map(Into::into))
    }
}

/// Converts objects between the versions of a kind. Any `Fn(Value, &str) -> Result<Value, String>` is a converter.
///
/// ```
/// use setpoint::webhook::Converter;
/// let rename = |mut object: serde_json::Value, to: &str| {
///     let (old, new) = if to.ends_with("/v2") { ("size", "replicas") } else { ("replicas", "size") };
///     object["spec"][new] = object["spec"][old].take();
///     Ok(object)
/// };
/// let converted = rename.convert(serde_json::json!({"spec": {"size": 3}}), "example.com/v2").unwrap();
/// assert_eq!(converted["spec"]["replicas"], 3);
/// ```
pub trait Converter: Send + Sync + 'static {
    /// Converts an object to the version `to` (`example.com/v2`). The `apiVersion` and all metadata except labels and
    /// annotations are set afterwards.
    fn convert(&self, object: Value, to: &str) -> Result<Value, String>;
}

impl<F: Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static> Converter for F {
    fn convert(&self, object: Value, to: &str) -> Result<Value, String> {
        self(object, to)
    }
}

/// A converter with a hub: all other versions are converted to it and back.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use setpoint::Kind;
/// use setpoint::webhook::{Conversion, Converter};
/// #[derive(Serialize, Deserialize)]
/// struct V1 { metadata: serde_json::Value, size: u32 }
/// #[derive(Serialize, Deserialize)]
/// struct V2 { metadata: serde_json::Value, replicas: u32 }
/// # impl setpoint::View for V1 { fn kind() -> Kind { Kind::new("example.com", "v1", "Widget", "widgets", true) } }
/// # impl setpoint::View for V2 { fn kind() -> Kind { Kind::new("example.com", "v2", "Widget", "widgets", true) } }
/// let conversion = Conversion::hub::<V2>().spoke(
///     |V1 { metadata, size }| Ok(V2 { metadata, replicas: size }),
///     |V2 { metadata, replicas }| Ok(V1 { metadata, size: replicas }),
/// );
/// let old = serde_json::json!({"apiVersion": "example.com/v1", "metadata": {}, "size": 3});
/// assert_eq!(conversion.convert(old, "example.com/v2").unwrap()["replicas"], 3);
/// ```
pub struct Conversion<H> {
    spokes: Vec<Spoke>,
    _hub: PhantomData<fn() -> H>,
}

/// A version, and the conversions between it and the hub.
struct Spoke {
    api_version: String,
    to_hub: Step,
    from_hub: Step,
}

type Step = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

impl Conversion<()> {
    /// Starts with the hub, which is usually the storage version.
    pub fn hub<H: View + Serialize>() -> Conversion<H> {
        Conversion { spokes: Vec::new(), _hub: PhantomData }
    }
}

impl<H: View + Serialize> Conversion<H> {
    /// Adds a version, and the conversions to the hub and back.
    pub fn spoke<S: View + Serialize>(
        mut self,
        to_hub: impl Fn(S) -> Result<H, String> + Send + Sync + 'static,
        from_hub: impl Fn(H) -> Result<S, String> + Send + Sync + 'static,
    ) -> Self {
        let (to_hub, from_hub) = (step(to_hub), step(from_hub));
        self.spokes.push(Spoke { api_version: S::kind().api_version(), to_hub, from_hub });
        self
    }

    /// Returns the conversions of a version. The hub has none.
    fn spoke_of(&self, api_version: &str) -> Result<Option<&Spoke>, String> {
        let found = self.spokes.iter().find(|spoke| spoke.api_version == api_version);
        let is_known = found.is_some() || H::kind().api_version() == api_version;
        if is_known { Ok(found) } else { Err(format!("there is no conversion of {api_version}")) }
    }
}

impl<H: View + Serialize> Converter for Conversion<H> {
    fn convert(&self, object: Value, to: &str) -> Result<Value, String> {
        let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let (source, target) = (self.spoke_of(&from)?, self.spoke_of(to)?);
        let hub = source.map_or_else(|| Ok(object.clone()), |spoke| (spoke.to_hub)(object.clone()))?;
        target.map_or_else(|| Ok(hub.clone()), |spoke| (spoke.from_hub)(hub.clone()))
    }
}

fn step<A: DeserializeOwned, B: Serialize>(
    convert: impl Fn(A) -> Result<B, String> + Send + Sync + 'static,
) -> Step {
    Arc::new(move |object| {
        let decoded = serde_json::from_value(object).map_err(|error| error.to_string())?;
        serde_json::to_value(convert(decoded)?).map_err(|error| error.to_string())
    })
}
