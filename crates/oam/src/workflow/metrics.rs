//! Conditions on Prometheus metrics, which must hold for some time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint_cue::{Instance, Source};

use super::calls::Reply;
use super::component::StepError;
use super::duration;
use super::template::Call;
use crate::egress::Request;
use crate::session::Session;

impl Session<'_> {
    /// Queries Prometheus once. The result and its start time are remembered between rounds.
    pub(super) fn check_metric(&mut self, call: &Call, step: &str) -> Result<Reply, StepError> {
        let params = &call.params;
        let text = |name: &str| params[name].as_str().unwrap_or_default();
        let (wanted, allowed) = (duration::parse(text("duration"))?, duration::parse(text("failDuration"))?);
        let value = self.query(text("metricEndpoint"), text("query"), step, &call.path)?;
        let met = is_met(value, text("condition")).map_err(StepError::Fail)?;
        let since = self.same_since(&format!("{step}.{}", call.path), met)?;
        let lasted = std::time::Duration::try_from(self.now.duration_since(since)).unwrap_or_default();
        let message =
            format!("the value {value} {} {}", if met { "meets" } else { "misses" }, text("condition"));
        let (result, failed) = (met && lasted >= wanted, !met && lasted >= allowed);
        Ok(Reply::Done(json!({"result": result, "failed": failed, "message": message})))
    }

    /// Returns since when the result has been the same.
    fn same_since(&mut self, memory: &str, met: bool) -> Result<Timestamp, StepError> {
        let known = self.variables.values.get(memory).filter(|known| known["met"] == met);
        let since = known.and_then(|known| known["since"].as_str()?.parse().ok());
        if let Some(since) = since {
            return Ok(since);
        }
        let now = json!({"met": met, "since": self.now});
        self.variables.set(memory.to_owned(), now).map_err(StepError::Fail)?;
        Ok(self.now)
    }

    fn query(&self, endpoint: &str, query: &str, step: &str, path: &str) -> Result<f64, StepError> {
        let url = format!("{}/api/v1/query?query={}", endpoint.trim_end_matches('/'), escaped(query));
        let headers = BTreeMap::new();
        let request = Request { method: "GET".into(), url, headers, body: String::new() };
        let response = self.send(request, step, path)?;
        let answer: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let result = &answer["data"]["result"];
        let value = if result[0].is_object() { &result[0]["value"][1] } else { &result[1] };
        let value = value.as_str().and_then(|value| value.parse().ok());
        value.ok_or_else(|| StepError::Retry(format!("Prometheus has no value ({})", response.status)))
    }
}

/// Returns whether a value meets a condition such as `>=0.95`. The error says what is wrong with the condition.
fn is_met(value: f64, condition: &str) -> Result<bool, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("condition {condition:?}: {why}");
    if !value.is_finite() {
        return Ok(false);
    }
    let empty = Source::parse("condition.cue", "").map_err(|errors| wrong(&errors))?;
    let instance = Instance::builder().source(&empty).build().map_err(|errors| wrong(&errors))?;
    let bound = instance.evaluate(&format!("number & ({condition})")).map_err(|errors| wrong(&errors))?;
    if let Some(error) = bound.error() {
        return Err(wrong(&error));
    }
    let met = instance.evaluate(&format!("({condition}) & {value:?}")).and_then(|met| met.to_json());
    Ok(met.is_ok())
}

/// Escapes a text for a query string.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_bounds() {
        for (value, condition, expected) in
            [(0.97, ">=0.95", true), (0.9, ">=0.95", false), (0.1, "<0.2", true), (3.0, ">1 & <2", false)]
        {
            assert_eq!(is_met(value, condition), Ok(expected), "{value} {condition}");
        }
        assert!(is_met(1.0, ">= high").is_err());
        assert!(is_met(1.0, ")(").is_err());
        assert_eq!(is_met(f64::NAN, ">0"), Ok(false));
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escaped("sum(rate(a[5m])) > 1"), "sum%28rate%28a%5B5m%5D%29%29%20%3E%201");
    }
}
