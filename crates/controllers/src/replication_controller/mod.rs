//! ReplicationController: the predecessor of ReplicaSet, whose selector is a plain map of labels.
//!
//! Owns, watches and writes the same as the ReplicaSet controller, for its own kind. It is that controller over another
//! kind: this module has no behaviour of its own.

mod view;

use setpoint::{Context, Runnable};

use self::view::ReplicationController;
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::replicaset::{Names, keeper};

pub(crate) const ENTRY: Entry = Entry {
    name: "replicationcontroller-controller",
    aliases: &["replicationcontroller"],
    on_by_default: true,
    gates: &[],
    summary: "keeps a ReplicationController's desired number of pods",
    watches: &[Access::watch("", "replicationcontrollers"), Access::watch("", "pods")],
    writes: &[
        Access::to("", "pods", &["create", "delete", "patch"]),
        Access::to("", "replicationcontrollers/status", &["update"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-rc-syncs", &ENTRY, "5")];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let names =
        Names { queue: "replicationmanager", component: "replication-controller", counts_terminating: false };
    keeper::<ReplicationController>(context, options, &ENTRY, names)
}
