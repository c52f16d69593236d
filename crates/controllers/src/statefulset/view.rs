//! Typed views of StatefulSets, claims and pod volumes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use setpoint::{Cached, LabelSelector, Metadata};

use crate::workload::amount::{Amount, Rounded};
use crate::workload::encoding::{Annotated, is_zero, one, seconds, ten};
use crate::workload::owners::Owner;
use crate::workload::template::PodTemplate;
use crate::workload::update_strategy::UpdateStrategy;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct StatefulSet {
    #[serde(default)]
    pub(super) metadata: Annotated,
    pub(super) spec: StatefulSetSpec,
    #[serde(default)]
    pub(super) status: StatefulSetStatus,
}

setpoint::view!(StatefulSet of k8s_openapi::api::apps::v1::StatefulSet);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatefulSetSpec {
    #[serde(default = "one")]
    pub(super) replicas: i32,
    pub(super) selector: LabelSelector,
    pub(super) template: PodTemplate,
    #[serde(default)]
    pub(super) volume_claim_templates: Vec<ClaimTemplate>,
    #[serde(default)]
    pub(super) service_name: Box<str>,
    #[serde(default)]
    pub(super) pod_management_policy: PodManagement,
    #[serde(default)]
    pub(super) update_strategy: UpdateStrategy<RollingUpdate>,
    #[serde(default = "ten")]
    pub(super) revision_history_limit: i32,
    #[serde(default)]
    pub(super) min_ready_seconds: i32,
    #[serde(default)]
    pub(super) persistent_volume_claim_retention_policy: Retention,
    #[serde(default)]
    ordinals: Ordinals,
}

/// A volume claim template, with its name.
#[derive(Clone, Debug)]
pub(super) struct ClaimTemplate {
    pub(super) name: String,
    pub(super) body: Map<String, Value>,
}

impl<'de> Deserialize<'de> for ClaimTemplate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = Map::deserialize(deserializer)?;
        let name = body.get("metadata").and_then(|meta| meta["name"].as_str()).unwrap_or_default().to_owned();
        Ok(Self { name, body })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum PodManagement {
    /// One after the other.
    #[default]
    OrderedReady,
    Parallel,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RollingUpdate {
    partition: Option<i32>,
    max_unavailable: Option<Amount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Retention {
    pub(super) when_deleted: RetentionPolicyType,
    pub(super) when_scaled: RetentionPolicyType,
}

/// The retention policy of claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum RetentionPolicyType {
    #[default]
    Retain,
    Delete,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Ordinals {
    start: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StatefulSetStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) observed_generation: i64,
    pub(super) replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) current_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) updated_replicas: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) current_revision: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) update_revision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) collision_count: Option<i32>,
    pub(super) available_replicas: i32,
}

impl Owner for StatefulSet {
    fn selector(&self) -> &LabelSelector {
        &self.spec.selector
    }
}

impl StatefulSetSpec {
    /// The desired number of pods.
    pub(super) fn wanted(&self) -> usize {
        usize::try_from(self.replicas).unwrap_or(0)
    }

    /// The first ordinal.
    pub(super) fn start(&self) -> usize {
        usize::try_from(self.ordinals.start).unwrap_or(0)
    }

    /// Whether the set has a pod with this ordinal.
    pub(super) fn has_ordinal(&self, ordinal: usize) -> bool {
        (self.start()..self.start().saturating_add(self.wanted())).contains(&ordinal)
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.pod_management_policy == PodManagement::OrderedReady
    }

    /// The number of first pods that a rolling update leaves unchanged.
    pub(super) fn partition(&self) -> Option<usize> {
        let rolling = self.update_strategy.rolling_update.as_ref()?;
        Some(usize::try_from(rolling.partition.unwrap_or(0)).unwrap_or(0))
    }

    /// How many pods may be unavailable during a rolling update, at least one.
    pub(super) fn max_unavailable(&self) -> usize {
        let rolling = self.update_strategy.rolling_update.as_ref();
        let amount = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let whole = i32::try_from(self.wanted()).unwrap_or(i32::MAX);
        let most = amount.map_or(1, |amount| amount.of(whole, Rounded::Down));
        usize::try_from(most).unwrap_or(0).max(1)
    }

    /// How long a pod must be ready to be available.
    pub(super) fn min_ready(&self) -> Duration {
        seconds(self.min_ready_seconds)
    }
}

/// A claim. Only its metadata is used.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Claim {}

setpoint::view!(Claim of k8s_openapi::api::core::v1::PersistentVolumeClaim);

/// The claims that a pod's volumes reference.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Volumes {
    spec: VolumesSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct VolumesSpec {
    volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    name: Box<str>,
    persistent_volume_claim: Option<ClaimSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSource {
    claim_name: Box<str>,
}

setpoint::view!(Volumes of k8s_openapi::api::core::v1::Pod);

impl Volumes {
    /// Returns the claim of the volume with this name.
    pub(super) fn claim(&self, volume: &str) -> Option<&str> {
        let volume = self.spec.volumes.iter().find(|known| *known.name == *volume)?;
        volume.persistent_volume_claim.as_ref().map(|source| &*source.claim_name)
    }
}

/// Splits a pod name into the name of its set and the ordinal.
pub(super) fn parent_and_ordinal(pod: &str) -> Option<(&str, usize)> {
    let (parent, ordinal) = pod.rsplit_once('-')?;
    let digits = !ordinal.is_empty() && ordinal.bytes().all(|digit| digit.is_ascii_digit());
    let ordinal = ordinal.parse::<i32>().ok().filter(|_| digits)?;
    Some((parent, usize::try_from(ordinal).ok()?))
}

/// Returns the ordinal of a pod, if its name belongs to this set.
pub(super) fn ordinal_in(set: &Metadata, pod: &Metadata) -> Option<usize> {
    parent_and_ordinal(&pod.name).filter(|(parent, _)| **parent == *set.name).map(|(_, ordinal)| ordinal)
}

pub(super) fn pod_name(set: &Metadata, ordinal: usize) -> String {
    format!("{}-{ordinal}", set.name)
}

pub(super) fn claim_name(set: &Cached<StatefulSet>, template: &ClaimTemplate, ordinal: usize) -> String {
    format!("{}-{}-{ordinal}", template.name, set.meta().name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_name_contains_its_set_and_ordinal() {
        for (name, expected) in [
            ("web-0", Some(("web", 0))),
            ("my-web-12", Some(("my-web", 12))),
            ("web", None),
            ("web-", None),
            ("web-x", None),
            ("web-+1", None),
            ("web-99999999999", None),
        ] {
            assert_eq!(parent_and_ordinal(name), expected, "{name}");
        }
    }
}
