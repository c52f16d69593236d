//! Keeps a VolumeAttributesClass while a claim or a volume uses it, or is about to.

use std::collections::BTreeSet;
use std::sync::Arc;

use setpoint::finalizer::{FinalizerAction, finalizer_action};
use setpoint::indexer::Indexer;
use setpoint::reconcile::ErrorContext;
use setpoint::source::Selection;
use setpoint::{
    Client, Context, Event, Informer, Key, Kind, Lister, Object, Outcome, Queue, ReconcileError, Reconciler,
    Runnable,
};
use setpoint_volume::{Claim, Volume};

use super::{change, concerns, make};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "volumeattributesclass-protection-controller",
    aliases: &[],
    on_by_default: true,
    gates: &["VolumeAttributesClass"],
    summary: "keeps VolumeAttributesClasses in use",
    watches: &[
        Access::watch("storage.k8s.io", "volumeattributesclasses"),
        Access::watch("", "persistentvolumeclaims"),
        Access::watch("", "persistentvolumes"),
    ],
    writes: &[Access::to("storage.k8s.io", "volumeattributesclasses", &["update"]), EVENTS],
    default_workers: 1,
    build,
};

const FINALIZER: &str = "kubernetes.io/vac-protection";
/// Index of claims and volumes by attributes class.
const BY_CLASS: &str = "attributes-class";

/// A VolumeAttributesClass. Only its metadata is used.
#[derive(serde::Deserialize)]
struct AttributesClass {}

setpoint::view!(AttributesClass of k8s_openapi::api::storage::v1::VolumeAttributesClass);

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let classes = context.informers.of::<AttributesClass>();
    let claims = context.informers.of::<Claim>();
    let volumes = context.informers.of::<Volume>();
    let queue = wiring::queue(context, "vacprotection");
    let wake = queue.clone();
    classes.add_handler(move |event: &Event| {
        if concerns(event, FINALIZER) {
            wake.add(event.object().key().clone());
        }
    });
    follow(&claims, &queue, of_claim);
    follow(&volumes, &queue, of_volume);
    let keeper = ClassKeeper {
        client: context.client.clone(),
        classes: classes.lister(),
        claims: claims.lister(),
        volumes: volumes.lister(),
    };
    let controller = wiring::controller(&ENTRY, options, queue, keeper, [&classes, &claims, &volumes]);
    vec![Box::new(controller)]
}

/// Indexes objects by their classes, and enqueues a class that an object stops using.
fn follow(informer: &Informer, queue: &Queue<Key>, classes_of: fn(&Object) -> BTreeSet<String>) {
    informer.add_index(BY_CLASS, Arc::new(move |object| classes_of(object).into_iter().collect()));
    let queue = queue.clone();
    informer.add_handler(move |event: &Event| {
        let left = match event {
            Event::Added { .. } => BTreeSet::new(),
            Event::Deleted { last, .. } => classes_of(last),
            Event::Updated { old, new } => &classes_of(old) - &classes_of(new),
        };
        left.into_iter().for_each(|class| queue.add(Key::cluster(class)));
    });
}

fn of_claim(claim: &Object) -> BTreeSet<String> {
    let Ok(claim) = claim.view::<Claim>() else { return BTreeSet::new() };
    let target = claim.status.modify_volume_status.as_ref();
    let names = [
        claim.spec.volume_attributes_class_name.as_deref(),
        claim.status.current_volume_attributes_class_name.as_deref(),
        target.and_then(|status| status.target_volume_attributes_class_name.as_deref()),
    ];
    names.into_iter().flatten().filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn of_volume(volume: &Object) -> BTreeSet<String> {
    let Ok(volume) = volume.view::<Volume>() else { return BTreeSet::new() };
    let name = volume.spec.volume_attributes_class_name.as_deref();
    name.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

struct ClassKeeper {
    client: Client,
    classes: Lister<AttributesClass>,
    claims: Lister<Claim>,
    volumes: Lister<Volume>,
}

impl Reconciler for ClassKeeper {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(class) = self.classes.get(key)? else { return Ok(Outcome::Settled) };
        let in_use = finalizer_action(class.meta(), FINALIZER) == FinalizerAction::CleanUp
            && self.is_used(key.name()).await?;
        let due = change(class.object(), FINALIZER, || in_use);
        make(&self.client, &Kind::of::<AttributesClass>(), class.object(), due).await
    }
}

impl ClassKeeper {
    /// Whether a claim or volume uses the class. If the caches show none, it is searched uncached; classes are rarely
    /// deleted.
    async fn is_used(&self, class: &str) -> Result<bool, ReconcileError> {
        let cached = |objects: &Indexer| !objects.indexed(BY_CLASS, class).is_empty();
        Ok(cached(self.volumes.objects())
            || cached(self.claims.objects())
            || self.has_any(&Kind::of::<Volume>(), class, of_volume).await?
            || self.has_any(&Kind::of::<Claim>(), class, of_claim).await?)
    }

    async fn has_any(
        &self,
        kind: &Kind,
        class: &str,
        classes_of: fn(&Object) -> BTreeSet<String>,
    ) -> Result<bool, ReconcileError> {
        let listed = self.client.list(kind, &Selection::default()).await;
        let listed =
            listed.attempting(format!("look for a {} that uses attributes class {class}", kind.kind()))?;
        Ok(listed.objects.iter().any(|object| classes_of(object).contains(class)))
    }
}
