//! Resolves a pod's priority class to a number.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::json::{Json, JsonMut};
use crate::status::Status;

pub struct Priority;

/// The encoded field that marks a default class.
const IS_DEFAULT: &[u8] = br#""globalDefault":true"#;
const PREEMPT: &str = "PreemptLowerPriority";

/// The values that a class sets on a pod.
struct Class {
    name: String,
    value: i64,
    preemption: String,
}

impl Plugin for Priority {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation != Operation::Delete
            && (review.is_for("", "pods") || review.is_for("scheduling.k8s.io", "priorityclasses"))
    }

    async fn mutate(&self, review: &Review<'_>, pod: &mut Value, old: Option<&Value>) -> Result<(), Status> {
        match old {
            _ if !review.is_for("", "pods") => {}
            Some(old) => keep(pod, old),
            None => {
                let class = class_of(review, pod).await?;
                apply(review, pod, &class)?;
            }
        }
        Ok(())
    }

    /// Rejects a second default class.
    async fn check(
        &self,
        review: &Review<'_>,
        class: Option<&Value>,
        _: Option<&Value>,
    ) -> Result<(), Status> {
        if review.is_for("", "pods") || !class.is_some_and(|class| class.flag("globalDefault")) {
            return Ok(());
        }
        let name = class.map_or("", |class| class.at("metadata").text("name"));
        match default_class(review).await? {
            Some(other) if review.operation == Operation::Create || other.name != name => {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    other.name
                );
                Err(review.forbidden(class, why))
            }
            _ => Ok(()),
        }
    }
}

fn keep(pod: &mut Value, old: &Value) {
    let spec = pod.object_mut("spec");
    for field in ["priority", "preemptionPolicy"] {
        if !spec.has(field) {
            spec.restore(field, old.at("spec"));
        }
    }
}

async fn class_of(review: &Review<'_>, pod: &Value) -> Result<Class, Status> {
    let name = pod.at("spec").text("priorityClassName");
    let found = match name {
        "" => default_class(review).await?,
        name => find(review, name).await?,
    };
    match (found, name) {
        (Some(class), _) => Ok(class),
        (None, "") => Ok(Class { name: String::new(), value: 0, preemption: PREEMPT.into() }),
        (None, name) => {
            Err(review.forbidden(Some(pod), format!("no PriorityClass with name {name} was found")))
        }
    }
}

fn read(class: &Value) -> Class {
    let preemption = Some(class.text("preemptionPolicy")).filter(|policy| !policy.is_empty());
    Class {
        name: class.at("metadata").text("name").into(),
        value: class.count("value"),
        preemption: preemption.unwrap_or(PREEMPT).into(),
    }
}

async fn find(review: &Review<'_>, name: &str) -> Result<Option<Class>, Status> {
    let server = review.server;
    let registry = server.registry.snapshot();
    if let Some(served) = registry.resource("scheduling.k8s.io", "v1", "priorityclasses") {
        let key = served.key(None, name);
        if let Some(record) = server.store.get(&key, None).await.map_err(|why| server.refusal(why))? {
            return served.decode_bare(&record).map(|class| Some(read(&class)));
        }
    }
    Ok(None)
}

/// Returns the default class; if there are several, the one with the lowest value.
async fn default_class(review: &Review<'_>) -> Result<Option<Class>, Status> {
    let server = review.server;
    let registry = server.registry.snapshot();
    let Some(served) = registry.resource("scheduling.k8s.io", "v1", "priorityclasses") else {
        return Ok(None);
    };
    let options = setpoint_store::ListOptions::default();
    let page = server.store.list(&served.resource.all(), options).await.map_err(|why| server.refusal(why))?;
    let mut lowest: Option<Class> = None;
    // Runs for every new pod, so only classes that can be the default are decoded.
    let is_candidate = |value: &[u8]| value.windows(IS_DEFAULT.len()).any(|part| part == IS_DEFAULT);
    for record in page.records.iter().filter(|record| is_candidate(&record.value)) {
        let class = served.decode_bare(record)?;
        let value = class.count("value");
        if class.flag("globalDefault") && lowest.as_ref().is_none_or(|lowest| value < lowest.value) {
            lowest = Some(read(&class));
        }
    }
    Ok(lowest)
}

fn apply(review: &Review<'_>, pod: &mut Value, class: &Class) -> Result<(), Status> {
    let spec = pod.at("spec");
    if let Some(given) = spec.int("priority").filter(|given| *given != class.value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {} from the given PriorityClass name",
            class.value
        );
        return Err(review.forbidden(Some(pod), why));
    }
    let given = spec.text("preemptionPolicy");
    if !given.is_empty() && given != class.preemption {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {} from the given PriorityClass name",
            class.preemption
        );
        return Err(review.forbidden(Some(pod), why));
    }
    let spec = pod.object_mut("spec");
    if !class.name.is_empty() {
        spec.set("priorityClassName", class.name.as_str());
    }
    spec.set("priority", class.value);
    spec.set("preemptionPolicy", class.preemption.as_str());
    Ok(())
}
