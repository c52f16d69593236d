//! The list of controllers. Wiring, flags, documentation and roles are derived from it.
//!
//! To add a controller, add its entry here. An unknown name is an error, never a controller that silently does not run.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use setpoint::{Access, Context, ControllerConfig, Runnable};

use crate::clusters::members::{Connect, Members};
use crate::egress::Egress;

/// All controllers, in startup order.
pub const REGISTRY: &[Entry] = &[
    crate::application::ENTRY,
    crate::workflow_run::ENTRY,
    crate::definition::revisions::ENTRY,
    crate::graph::ENTRY,
];

/// Static information about a controller.
#[derive(Clone, Copy)]
pub struct Entry {
    /// `application-controller`
    pub name: &'static str,
    /// A one-line description.
    pub summary: &'static str,
    /// The resources it watches.
    pub watches: &'static [Access],
    /// The resources it requests otherwise.
    pub writes: &'static [Access],
    /// The flag that sets its number of workers.
    pub workers_flag: &'static str,
    /// The default number of workers.
    pub default_workers: usize,
    /// Builds its runnables: requests informers and adds handlers, but starts nothing.
    pub build: fn(&Context, &Options) -> Vec<Box<dyn Runnable>>,
}

/// The permission to elect a leader and to share shards.
const LEASES: Access =
    Access::to("coordination.k8s.io", "leases", &["get", "list", "watch", "create", "update", "delete"]);

/// Templates may apply objects of any kind, so their controllers need all permissions.
pub(crate) const ANYTHING: Access =
    Access::to("*", "*", &["get", "list", "watch", "create", "update", "patch", "delete"]);

/// Settings of the controllers of one manager.
///
/// ```
/// let mut options = setpoint_oam::Options::default();
/// options.workers.insert("application-controller".into(), 16);
/// ```
#[derive(Clone, Default)]
pub struct Options {
    /// The number of workers by controller name, at least one. Overrides the default.
    pub workers: BTreeMap<String, usize>,
    /// Sends the requests of workflow steps. Without it, those steps fail.
    pub egress: Option<Arc<dyn Egress>>,
    /// Connects to other clusters. Without it, there is only the local one.
    pub connect: Option<Arc<dyn Connect>>,
    /// The clusters shared by the controllers of one manager, set when the first of them is built.
    members: Arc<OnceLock<Members>>,
}

impl Options {
    /// Returns the shared clusters and, for the first caller, the controller that maintains them.
    pub(crate) fn members(&self, context: &Context) -> (Members, Vec<Box<dyn Runnable>>) {
        if let Some(members) = self.members.get() {
            return (members.clone(), Vec::new());
        }
        let (members, parts) = Members::new(context, self.connect.clone());
        (self.members.get_or_init(|| members).clone(), parts)
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Options").field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// A `--controllers` list names an unknown controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not in the list of known controllers: {known}")]
pub struct UnknownController {
    name: String,
    known: String,
}

impl Entry {
    /// Builds its runnables.
    pub fn parts(&self, context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
        let workers = options.workers.get(self.name).copied().unwrap_or(self.default_workers).max(1);
        let mut config = ControllerConfig::clone(&context.config);
        config.workers = workers;
        config.reconcile_config.max_concurrent = config.reconcile_config.max_concurrent.max(workers);
        // Informers are shared with other controllers, which a full queue would block too. A queue holds each key once,
        // so it is bounded by the objects in the cluster.
        config.queue_size = None;
        let mut context = context.clone();
        context.config = Arc::new(config);
        (self.build)(&context, options)
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Entry").field(&self.name).finish()
    }
}

/// Returns the controllers that a `--controllers` list selects: `*` all of them, `foo` this one, `-foo` not this one.
///
/// ```
/// let names = |list: &[&str]| -> Vec<_> {
///     setpoint_oam::selected(list).unwrap().iter().map(|entry| entry.name).collect()
/// };
/// assert_eq!(names(&["definition-controller"]), ["definition-controller"]);
/// assert_eq!(names(&["*", "-definition-controller", "-workflow-run-controller"]), ["application-controller", "resource-graph-controller"]);
/// ```
pub fn selected<S: AsRef<str>>(list: &[S]) -> Result<Vec<&'static Entry>, UnknownController> {
    let word = |word: &'_ S| -> (bool, String) {
        let word = word.as_ref();
        word.strip_prefix('-').map_or((true, word.to_owned()), |name| (false, name.to_owned()))
    };
    let words: Vec<(bool, String)> = list.iter().map(word).collect();
    for (_, name) in &words {
        if name != "*" && !REGISTRY.iter().any(|entry| entry.name == name) {
            let known: Vec<_> = REGISTRY.iter().map(|entry| entry.name).collect();
            return Err(UnknownController { name: name.clone(), known: known.join(", ") });
        }
    }
    let all = words.iter().any(|(wanted, name)| *wanted && name == "*");
    let is_wanted = |entry: &&Entry| {
        let named = words.iter().find(|(_, name)| name == entry.name);
        named.map_or(all, |(wanted, _)| *wanted)
    };
    Ok(REGISTRY.iter().filter(is_wanted).collect())
}

/// Returns the ClusterRole rules that these controllers need.
///
/// ```
/// let rules = setpoint_oam::rules(&setpoint_oam::selected(&["definition-controller"]).unwrap());
/// assert!(rules.iter().any(|rule| rule["resources"][0] == "definitionrevisions"));
/// ```
pub fn rules(entries: &[&Entry]) -> Vec<Value> {
    let all = entries.iter().flat_map(|entry| entry.watches.iter().chain(entry.writes)).chain([&LEASES]);
    let mut verbs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for access in all {
        let known = verbs.entry((access.group, access.resource)).or_default();
        for verb in access.verbs {
            if !known.contains(verb) {
                known.push(verb);
            }
        }
    }
    let rule = |((group, resource), verbs): (&(&str, &str), &Vec<&str>)| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    verbs.iter().map(rule).collect()
}
