//! The documents that webhooks respond with: how they are decoded, and which types are accepted, as in v1.34.

use serde_json::Value;

use crate::json::Json;
use crate::schema::{go, syntax, yaml};

/// The first version of a review that both sides support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    /// Returns the first known version in a list.
    pub(crate) fn first_of(versions: &[Value]) -> Option<Self> {
        versions.iter().find_map(|version| match version.as_str()? {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// The types that v1.34's decoder knows besides reviews.
const UNVERSIONED: [&str; 5] = ["Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"];

/// A type of review: its group and kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewType {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
}

impl ReviewType {
    pub(crate) fn api_version(&self, version: ReviewVersion) -> String {
        format!("{}/{}", self.group, version.name())
    }

    /// Decodes a response. The type may be missing.
    pub(crate) fn decode(&self, body: &[u8], version: ReviewVersion) -> Result<Value, String> {
        let review = decode(body)?;
        self.check(&review, version)?;
        Ok(review)
    }

    /// Checks that the type is stated, and right.
    pub(crate) fn verify(&self, review: &Value, version: ReviewVersion) -> Result<(), String> {
        let (api_version, kind) = (review.text("apiVersion"), review.text("kind"));
        if !api_version.is_empty() && !kind.is_empty() {
            return Ok(());
        }
        let (group, found) = api_version.split_once('/').unwrap_or(("", api_version));
        let wanted = self.api_version(version);
        Err(format!(
            "expected webhook response of {wanted}, Kind={}, got {group}/{found}, Kind={kind}",
            self.kind
        ))
    }

    /// Rejects a document of another type.
    fn check(&self, review: &Value, version: ReviewVersion) -> Result<(), String> {
        let own = self.api_version(version);
        let (api_version, kind) = (review.text("apiVersion"), review.text("kind"));
        let api_version = if api_version.is_empty() { &own } else { api_version };
        let kind = if kind.is_empty() { self.kind } else { kind };
        if api_version == own && kind == self.kind {
            return Ok(());
        }
        let known = [ReviewVersion::V1, ReviewVersion::V1Beta1];
        let other = known.into_iter().find(|known| self.api_version(*known) == api_version);
        let found = match other {
            Some(other) if kind == self.kind => other.name(),
            None if api_version == "v1" && UNVERSIONED.contains(&kind) => "v1",
            _ => {
                return Err(format!(
                    "no kind {kind:?} is registered for version {api_version:?} in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\""
                ));
            }
        };
        let own = version.name();
        Err(format!("converting ({found}.{kind}) to ({own}.{}): unknown conversion", self.kind))
    }
}

/// Decodes JSON, or YAML as v1.34's serializers recognize it.
fn decode(body: &[u8]) -> Result<Value, String> {
    let failed = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let is_json = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let value = match is_json {
        true => {
            syntax::check(body).map_err(failed)?;
            serde_json::from_slice(body).map_err(|why| failed(why.to_string()))?
        }
        false => yaml::to_value(body).map_err(failed)?,
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Default::default())),
        other => Err(failed(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go::kind_of(&other)
        ))),
    }
}
