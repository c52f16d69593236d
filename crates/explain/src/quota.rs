//! ResourceQuotas: exhausted resources.

use serde_json::Value;
use setpoint_quantity::Quantity;

use crate::inquiry::{Inquiry, node_of};
use crate::model::{Evidence, Node};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::names;

pub(crate) fn explain<'a>(_: &Inquiry<'a>, quota: &'a Item) -> Node {
    let node = node_of(quota);
    let hard = quota.at("/status/hard").as_object().or_else(|| quota.at("/spec/hard").as_object());
    let Some(hard) = hard else { return node.converged("limits nothing") };
    if quota.at("/status/hard").is_null() {
        return node.progressing("has not been counted yet");
    }
    let used = |name: &str| quota.at("/status/used").get(name).unwrap_or(&Value::Null);
    let line = |(name, hard): (&String, &Value)| {
        format!("{name}: {} of {} used", written(used(name)), written(hard))
    };
    let is_full = |(name, hard): &(&String, &Value)| match (Quantity::of(used(name)), Quantity::of(hard)) {
        (Ok(used), Ok(hard)) => used.milli_value() >= hard.milli_value() && !used.is_zero(),
        _ => false,
    };
    let full: Vec<String> = hard.iter().filter(is_full).map(line).collect();
    let evidence = hard.iter().map(|entry| Evidence::field("status.used", line(entry)));
    let node = node.evidence(evidence);
    match full.is_empty() {
        true => node.converged("has room"),
        false => node.blocked(
            format!("is exhausted: {}", names(&full, 4)),
            format!("raise spec.hard of ResourceQuota {}, or delete what uses it", quota.name()),
        ),
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "0".to_owned(),
        other => other.to_string(),
    }
}
