//! Reads the input of a plan from the caches. No client.

use setpoint::object::DecodeError;
use setpoint::{Cached, Key, Lister};
use setpoint_volume::{
    Claim, Class, FREE_BY_CLASS, Latest, PODS_BY_CLAIM, PodVolumes, SELECTED_NODE, VOLUMES_BY_CLAIM, Volume,
    default_class, is_terminated,
};

pub(super) struct Caches {
    pub(super) claims: Latest<Claim>,
    pub(super) volumes: Latest<Volume>,
    pub(super) classes: Lister<Class>,
    pub(super) pods: Lister<PodVolumes>,
    pub(super) nodes: Lister<k8s_openapi::api::core::v1::Node>,
}

/// The observed state around a claim.
#[derive(Clone, Default)]
pub(super) struct Observed {
    /// The class that the claim names.
    pub(super) class: Option<Cached<Class>>,
    /// The default class, for claims that name none.
    pub(super) default_class: Option<String>,
    /// The volume that the claim names.
    pub(super) named: Option<Cached<Volume>>,
    /// Candidate volumes: those reserved for it, and unreserved ones of its class.
    pub(super) candidates: Vec<Cached<Volume>>,
    /// Unscheduled pods that use it.
    pub(super) waiting: Vec<String>,
    /// Whether the node selected by the scheduler exists.
    pub(super) has_node: bool,
}

impl Caches {
    pub(super) fn observe(&self, claim: &Cached<Claim>) -> Result<Observed, DecodeError> {
        let class = match claim.class() {
            "" => None,
            name => self.classes.get(&Key::cluster(name))?,
        };
        if !claim.spec.volume_name.is_empty() {
            let named = self.volumes.get(&Key::cluster(&*claim.spec.volume_name))?;
            return Ok(Observed { class, named, ..Observed::default() });
        }
        if claim.was_bound() {
            return Ok(Observed { class, ..Observed::default() });
        }
        let mut candidates = self.volumes.indexed(VOLUMES_BY_CLAIM, &claim.key().to_string())?;
        candidates.extend(self.volumes.indexed(FREE_BY_CLASS, claim.class())?);
        let default_class = match claim.has_class() {
            true => None,
            false => default_class(&self.classes.list(None)?).map(|class| class.key().name().to_owned()),
        };
        let waiting = self.unscheduled_pods_of(claim.key())?;
        let node = claim.metadata.get(SELECTED_NODE);
        let has_node = node.is_some_and(|node| self.nodes.objects().contains(&Key::cluster(node)));
        Ok(Observed { class, default_class, candidates, waiting, has_node, named: None })
    }

    fn unscheduled_pods_of(&self, claim: &Key) -> Result<Vec<String>, DecodeError> {
        let pods = self.pods.indexed(PODS_BY_CLAIM, &claim.to_string())?;
        let waits = |pod: &&Cached<PodVolumes>| !is_terminated(pod) && pod.node().is_none();
        Ok(pods.iter().filter(waits).map(|pod| pod.key().name().to_owned()).collect())
    }

    /// Lists unfinished pods that use a claim.
    pub(super) fn pods_using(&self, claim: &Key) -> Result<Vec<String>, DecodeError> {
        let pods = self.pods.indexed(PODS_BY_CLAIM, &claim.to_string())?;
        Ok(pods.iter().filter(|pod| !is_terminated(pod)).map(|pod| pod.key().to_string()).collect())
    }
}
