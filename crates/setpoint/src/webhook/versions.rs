//! Custom resources with several versions: one CRD, and the conversions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::core::crd::{MergeError, merge_crds};
use serde::Serialize;
use serde_json::Value;

use super::handler::{Conversion, Converter};
use crate::View;

/// The versions of a custom resource, each derived with kube's `CustomResource`, and the conversions between the stored
/// version and the others. It is the [`Converter`] of [`Webhooks::convert`](super::Webhooks::convert).
///
/// ```
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use setpoint::webhook::{Endpoint, Versions, Webhooks};
///
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Widget", namespaced)]
/// struct WidgetSpec { size: u32 }
///
/// mod v2 {
/// #   use kube::CustomResource;
/// #   use schemars::JsonSchema;
/// #   use serde::{Deserialize, Serialize};
///     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
///     #[kube(group = "example.com", version = "v2", kind = "Widget", namespaced)]
///     pub struct WidgetSpec { pub replicas: u32 }
/// }
///
/// let versions = Versions::stored::<v2::Widget>()
///     .served(
///         |old: Widget| Ok(v2::Widget { metadata: old.metadata, spec: v2::WidgetSpec { replicas: old.spec.size } }),
///         |new| Ok(Widget { metadata: new.metadata, spec: WidgetSpec { size: new.spec.replicas } }),
///     )
///     .deprecated("v1", "example.com/v1 Widget is deprecated: use v2");
/// let definition = versions.definition().unwrap();
/// assert_eq!(definition.spec.versions.len(), 2);
/// let webhooks = Webhooks::new("widgets").convert::<v2::Widget>(versions);
/// let definition = webhooks.converting(definition, &Endpoint::service("shop", "operator"), None);
/// assert_eq!(definition.spec.conversion.unwrap().strategy, "Webhook");
/// ```
pub struct Versions<H> {
    conversion: Conversion<H>,
    stored: CustomResourceDefinition,
    others: Vec<CustomResourceDefinition>,
}

impl Versions<()> {
    /// Starts with the stored version, through which all others are converted.
    pub fn stored<H: View + Serialize + CustomResourceExt>() -> Versions<H> {
        Versions { conversion: Conversion::hub(), stored: H::crd(), others: Vec::new() }
    }
}

impl<H: View + Serialize> Versions<H> {
    /// Adds a version, and the conversions to the stored one and back.
    pub fn served<S: View + Serialize + CustomResourceExt>(
        mut self,
        to_stored: impl Fn(S) -> Result<H, String> + Send + Sync + 'static,
        from_stored: impl Fn(H) -> Result<S, String> + Send + Sync + 'static,
    ) -> Self {
        self.others.push(S::crd());
        Self { conversion: self.conversion.spoke(to_stored, from_stored), ..self }
    }

    /// Deprecates a version: the API server warns its users.
    pub fn deprecated(mut self, version: &str, warning: &str) -> Self {
        for definition in self.others.iter_mut().chain([&mut self.stored]) {
            for known in definition.spec.versions.iter_mut().filter(|known| known.name == version) {
                known.deprecated = Some(true);
                known.deprecation_warning = Some(warning.to_owned());
            }
        }
        self
    }

    /// Returns the CRD with all versions. Fails if they have different groups, kinds or scopes.
    pub fn definition(&self) -> Result<CustomResourceDefinition, MergeError> {
        let stored =
            self.stored.spec.versions.first().map(|version| version.name.clone()).unwrap_or_default();
        let all = self.others.iter().chain([&self.stored]).cloned().collect();
        merge_crds(all, &stored)
    }
}

impl<H: View + Serialize> Converter for Versions<H> {
    fn convert(&self, object: Value, to: &str) -> Result<Value, String> {
        self.conversion.convert(object, to)
    }
}
