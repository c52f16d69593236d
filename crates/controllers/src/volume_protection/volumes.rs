//! Keeps a volume while it is bound.

use setpoint::{Client, Context, Event, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable};
use setpoint_volume::Volume;

use super::{change, concerns, make};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "persistentvolume-protection-controller",
    aliases: &["pv-protection"],
    on_by_default: true,
    gates: &[],
    summary: "keeps volumes that are bound to claims",
    watches: &[Access::watch("", "persistentvolumes")],
    writes: &[Access::to("", "persistentvolumes", &["update"]), EVENTS],
    default_workers: 1,
    build,
};

const FINALIZER: &str = "kubernetes.io/pv-protection";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let volumes = context.informers.of::<Volume>();
    let queue = wiring::queue(context, "pvprotection");
    let wake = queue.clone();
    volumes.add_handler(move |event: &Event| {
        if concerns(event, FINALIZER) {
            wake.add(event.object().key().clone());
        }
    });
    let keeper = VolumeKeeper { client: context.client.clone(), volumes: volumes.lister() };
    vec![Box::new(wiring::controller(&ENTRY, options, queue, keeper, [&volumes]))]
}

struct VolumeKeeper {
    client: Client,
    volumes: Lister<Volume>,
}

impl Reconciler for VolumeKeeper {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(volume) = self.volumes.get(key)? else { return Ok(Outcome::Settled) };
        let due = change(volume.object(), FINALIZER, || &*volume.status.phase == "Bound");
        make(&self.client, &Kind::of::<Volume>(), volume.object(), due).await
    }
}
