//! The fields of an encoded pod that views are extracted from, borrowed from the bytes: only what a view keeps is
//! copied.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;

/// A pod, with the annotations that `A` reads.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a, A: Default + Deserialize<'de>"))]
pub(crate) struct EncodedPod<'a, A> {
    metadata: EncodedMetadata<A>,
    #[serde(borrow)]
    pub(crate) spec: EncodedSpec<'a>,
    #[serde(borrow)]
    pub(crate) status: EncodedStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "A: Default + Deserialize<'de>"))]
struct EncodedMetadata<A> {
    annotations: Option<A>,
}

impl<A> EncodedPod<'_, A> {
    pub(crate) fn annotations(&self) -> Option<&A> {
        self.metadata.annotations.as_ref()
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EncodedSpec<'a> {
    #[serde(borrow)]
    pub(crate) node_name: Cow<'a, str>,
    #[serde(borrow)]
    init_containers: Option<Vec<EncodedInitContainer<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EncodedInitContainer<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    restart_policy: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EncodedStatus<'a> {
    #[serde(borrow)]
    pub(crate) phase: Cow<'a, str>,
    #[serde(borrow)]
    conditions: Option<Vec<EncodedCondition<'a>>>,
    #[serde(borrow)]
    container_statuses: Option<Vec<EncodedContainerStatus<'a>>>,
    #[serde(borrow)]
    init_container_statuses: Option<Vec<EncodedContainerStatus<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EncodedCondition<'a> {
    #[serde(borrow)]
    pub(crate) r#type: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) status: Cow<'a, str>,
    pub(crate) last_transition_time: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EncodedContainerStatus<'a> {
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    pub(crate) restart_count: i32,
    state: Option<EncodedState>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EncodedState {
    terminated: Option<EncodedTerminated>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EncodedTerminated {
    pub(crate) exit_code: i32,
    pub(crate) finished_at: Option<Timestamp>,
}

impl EncodedSpec<'_> {
    /// Whether the init container with this name is a sidecar.
    fn is_sidecar(&self, name: &str) -> bool {
        let mut init_containers = self.init_containers.iter().flatten();
        init_containers.any(|container| container.name == name && container.restart_policy == "Always")
    }
}

impl EncodedStatus<'_> {
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &EncodedCondition<'_>> {
        self.conditions.iter().flatten()
    }

    pub(crate) fn ready(&self) -> Option<&EncodedCondition<'_>> {
        self.conditions().find(|condition| condition.r#type == "Ready")
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = &EncodedContainerStatus<'_>> {
        self.container_statuses.iter().flatten()
    }

    pub(crate) fn init_containers(&self) -> impl Iterator<Item = &EncodedContainerStatus<'_>> {
        self.init_container_statuses.iter().flatten()
    }

    /// Lists sidecars among the init containers.
    pub(crate) fn sidecars<'a>(
        &'a self,
        spec: &'a EncodedSpec<'_>,
    ) -> impl Iterator<Item = &'a EncodedContainerStatus<'a>> {
        self.init_containers().filter(|status| spec.is_sidecar(&status.name))
    }
}

impl EncodedContainerStatus<'_> {
    pub(crate) fn terminated(&self) -> Option<&EncodedTerminated> {
        self.state.as_ref()?.terminated.as_ref()
    }
}
