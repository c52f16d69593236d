//! Operators in any language: Metacontroller's composite and decorator controllers, whose logic is a hook.
//!
//! ```text
//!  CompositeController ─► fleet/    one controller of parents for each      (DecoratorController likewise)
//!                           │
//!  parent, children ─► parents/ ─► wire/ ─► call/ ─► the hook: HTTP, a child process, a function
//!                           ▲                             │
//!                 apply/, rollout/  ◄── children, status ─┘
//!
//!  crds/      the kinds                                    model/    … as users write them           (pure)
//!  fleet/     which controllers run                        wire/     requests and answers             (pure)
//!  parents/   the reconcile of a parent                    apply/    what has to be written           (pure)
//!  call/      how hooks are called                         rollout/  one child after the other        (pure)
//!  related.rs what customize hooks select        (pure)    install.rs  installs the kinds
//! ```
//!
//! Invariants:
//! - The hook is not called for a parent that has not changed, if its children and related objects have not changed
//!   either. Objects that already match the hook's response are not written.
//! - A hook that hangs, crashes or returns invalid responses only affects its own parents, within bounds.
//! - Every write has a precondition, or is a server-side apply. Programs write as they like, but only during their run.

#![deny(missing_docs)]

mod ansible;
mod apply;
mod call;
mod crds;
mod dependents;
mod fleet;
mod gateway;
mod helm;
mod install;
mod model;
mod names;
mod parents;
mod program;
mod related;
mod reload;
mod rollout;
mod scratch;
mod watches;
mod wire;

use std::sync::Arc;

use setpoint::{Context, LabelSelector, Runnable};

pub use ansible::{Ansible, AnsibleCall, AnsibleOptions, AnsibleProgram, Play, PlayResult};
pub use apply::ApplyMode;
pub use call::{
    Command, Commands, Functions, HookReply, HookRequest, HookTarget, MAX_ANSWER, Network, Recorded,
    Recording, Transport, Transports,
};
pub use crds::definitions;
pub use gateway::Access;
pub use helm::{Chart, Helm, HelmCall, HelmOptions, HelmProgram, HelmVerb};
pub use install::install;
pub use parents::{Observer, Report, Write};
pub use reload::Reload;
pub use watches::{Watch, WatchOptions, Watches, read_watches, watch_runnables};

/// The settings of controllers.
///
/// ```
/// let options = setpoint_hooks::Options::new(setpoint_hooks::Functions::new());
/// assert_eq!((options.workers, options.field_manager.as_str()), (5, "metacontroller"));
/// ```
#[derive(Clone)]
pub struct Options {
    /// The transport to hooks.
    pub transports: Arc<dyn Transports>,
    /// The apply strategy for children, unless a controller has the annotation `hooks.setpoint.dev/apply-strategy`.
    pub apply: ApplyMode,
    /// The field manager of server-side applies.
    pub field_manager: String,
    /// Which CompositeControllers and DecoratorControllers run: those with these labels. Defaults to all.
    pub selector: LabelSelector,
    /// How many parents of one controller are reconciled concurrently.
    pub workers: usize,
    /// Receives a report of each reconcile.
    pub observer: Option<Arc<dyn Observer>>,
    /// Restarts the controllers at run time.
    pub reload: Reload,
}

impl Options {
    /// The defaults of Metacontroller.
    pub fn new(transports: impl Transports) -> Self {
        Self {
            transports: Arc::new(transports),
            apply: ApplyMode::default(),
            field_manager: "metacontroller".into(),
            selector: LabelSelector::default(),
            workers: fleet::WORKERS,
            observer: None,
            reload: Reload::default(),
        }
    }
}

/// Builds everything that runs CompositeControllers and DecoratorControllers. Call [`install`] once before.
pub fn runnables(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    fleet::runnables(context, options)
}
