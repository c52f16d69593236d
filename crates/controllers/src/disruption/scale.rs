//! The desired scale of the pods' owners.

use std::collections::BTreeMap;

use serde::Deserialize;
use setpoint::client::{Optional, Subresource};
use setpoint::informer::Informer;
use setpoint::{Cached, Client, ClientError, Context, Key, Kind, Object, OwnerRef};

use super::view::{Scalable, Target};
use crate::served::Served;

/// Why the expected number of pods is unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScaleError {
    #[error("found no controllers for pod {pod:?}")]
    NoController { pod: String },
    #[error("no matches for kind {kind:?} in version {api_version:?}")]
    NotServed { api_version: String, kind: String },
    #[error("{resource} does not implement the scale subresource")]
    NoScale { resource: String },
    #[error("{0}")]
    Call(#[from] ClientError),
}

/// The number of expected pods, and the pods without a controller.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) pods: i32,
    pub(super) unmanaged: Vec<String>,
}

pub(super) struct Scales {
    client: Client,
    sets: Informer,
    deployments: Informer,
    others: Vec<Informer>,
    served: Served,
}

/// An owner's uid and its scale.
type Scale = (Box<str>, i32);

impl Scales {
    /// Also returns the informers that must sync first.
    pub(super) fn new(context: &Context) -> (Self, Vec<Informer>) {
        let informer = |group: &str, kind: &str, plural: &str| {
            context.informers.select(&Kind::new(group, "v1", kind, plural, true), Default::default())
        };
        let scales = Self {
            client: context.client.clone(),
            sets: informer("apps", "ReplicaSet", "replicasets"),
            deployments: informer("apps", "Deployment", "deployments"),
            others: vec![
                informer("apps", "StatefulSet", "statefulsets"),
                informer("", "ReplicationController", "replicationcontrollers"),
            ],
            served: Served::new(context),
        };
        let mut informers = vec![scales.sets.clone(), scales.deployments.clone()];
        informers.extend(scales.others.iter().cloned());
        (scales, informers)
    }

    /// Returns the total scale of the controllers of these pods, each counted once.
    pub(super) async fn expected(&self, pods: &[Cached<Target>]) -> Result<Expected, ScaleError> {
        let mut scales: BTreeMap<Box<str>, i32> = BTreeMap::new();
        let mut unmanaged = Vec::new();
        for pod in pods {
            let Some(controller) = pod.meta().controller() else {
                unmanaged.push(pod.meta().name.to_string());
                continue;
            };
            if scales.contains_key(&controller.uid) {
                continue;
            }
            let no_controller = || ScaleError::NoController { pod: pod.meta().name.to_string() };
            let (uid, replicas) = self.scale(pod.key(), controller).await?.ok_or_else(no_controller)?;
            scales.insert(uid, replicas);
        }
        Ok(Expected { pods: scales.values().sum(), unmanaged })
    }

    async fn scale(&self, pod: &Key, controller: &OwnerRef) -> Result<Option<Scale>, ScaleError> {
        if let Some(scale) = self.cached(pod, controller) {
            return Ok(Some(scale));
        }
        self.asked_for(pod, controller).await
    }

    /// Looks up the owner in the caches. A ReplicaSet of a Deployment has the Deployment's scale.
    fn cached(&self, pod: &Key, controller: &OwnerRef) -> Option<Scale> {
        if is_of(&self.sets, controller) {
            let set = find(&self.sets, pod, controller)?;
            return match set.meta().controller() {
                Some(deployment) if is_of(&self.deployments, deployment) => {
                    find(&self.deployments, pod, deployment).and_then(|found| wanted(&found))
                }
                Some(other) if *other.kind == *"Deployment" => None,
                _ => wanted(&set),
            };
        }
        let informer = self.others.iter().find(|informer| is_of(informer, controller))?;
        find(informer, pod, controller).and_then(|found| wanted(&found))
    }

    /// Reads the scale subresource of an owner of any other kind.
    async fn asked_for(&self, pod: &Key, controller: &OwnerRef) -> Result<Option<Scale>, ScaleError> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Scaled {
            spec: ScaledSpec,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct ScaledSpec {
            replicas: i32,
        }
        let (api_version, kind) = (controller.api_version.to_string(), controller.kind.to_string());
        let served = self.served.get().await?;
        let not_served = || ScaleError::NotServed { api_version: api_version.clone(), kind: kind.clone() };
        let kind = served.kind(&api_version, &kind).ok_or_else(not_served)?;
        let key = match kind.namespaced() {
            true => pod.sibling(&*controller.name),
            false => Key::cluster(&*controller.name),
        };
        let Some(scale) = self.client.get_subresource(kind, &key, Subresource::Scale).await.optional()?
        else {
            let there = self.client.get(kind, &key).await.optional()?.is_some();
            let resource = if kind.group().is_empty() {
                kind.plural().to_owned()
            } else {
                format!("{}.{}", kind.plural(), kind.group())
            };
            return if there { Err(ScaleError::NoScale { resource }) } else { Ok(None) };
        };
        let replicas = scale.decode::<Scaled>().unwrap_or_default().spec.replicas;
        Ok((scale.meta().uid == controller.uid).then(|| (controller.uid.clone(), replicas)))
    }
}

fn is_of(informer: &Informer, owner: &OwnerRef) -> bool {
    informer.kind().kind() == &*owner.kind && informer.kind().group() == owner.group()
}

fn find(informer: &Informer, pod: &Key, owner: &OwnerRef) -> Option<Object> {
    informer.objects().get(&pod.sibling(&*owner.name)).filter(|found| found.meta().uid == owner.uid)
}

fn wanted(owner: &Object) -> Option<Scale> {
    let replicas = owner.decode::<Scalable>().ok()?.replicas();
    Some((owner.meta().uid.clone(), replicas))
}
