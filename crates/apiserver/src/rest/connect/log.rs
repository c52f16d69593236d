//! The logs of a container: validates the options, and builds the request to the kubelet.

use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use super::{container, kubelet};
use crate::body::Body;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kubelet::log;
use crate::metadata;
use crate::proxy::{Location, escape};
use crate::rest::Call;
use crate::status::{Named, Status};
use crate::websocket;

/// The feature gate of the option `stream`.
const SPLIT_STREAMS: &str = "PodLogsQuerySplitStreams";
const STREAMS: [&str; 3] = ["All", "Stderr", "Stdout"];

pub(super) async fn read(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let name = call.name()?;
    let skips_verification = call.query.flag("insecureSkipTLSVerifyBackend") == Some(true);
    let metrics = &call.server.measured.streams;
    metrics.logs(!skips_verification);
    check_options(call, name)?;
    let pod = call.served.decode_bare(&*call.record().await?)?;
    let container = container(call.query.get("container").unwrap_or_default(), &pod)?;
    let node_name = pod.at("spec").text("nodeName");
    if node_name.is_empty() {
        // Without a node, the pod has no logs yet.
        let mut nothing = Response::new(Body::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    let location = location(call, &pod, container, kubelet(call, node_name).await?.authority())?;
    let kubelets = &call.server.kubelets;
    let transport = if skips_verification { kubelets.unverified()? } else { kubelets.transport()? };
    let answer = log::read(&transport, &location, name).await.inspect_err(|why| {
        if why.message.contains("x509:") {
            metrics.logs_distrusted();
        }
    })?;
    Ok(match websocket::is_request(call.headers) {
        true => websocket::answer_log(call.headers, answer.into_body()),
        false => answer,
    })
}

/// The kubelet's path of the logs. Only options that are set are passed on.
fn location(call: &Call<'_>, pod: &Value, container: &str, host: String) -> Result<Location, Status> {
    let (query, metadata) = (call.query, metadata::of(pod));
    let mut options: Vec<(&str, String)> = Vec::new();
    for flag in ["follow", "previous", "timestamps"] {
        if query.flag(flag) == Some(true) {
            options.push((flag, "true".into()));
        }
    }
    for number in ["sinceSeconds", "tailLines", "limitBytes"] {
        let value = query.number(number).map_err(Status::bad_request)?;
        options.extend(value.map(|value| (number, value.to_string())));
    }
    if let Some(time) = query.get("sinceTime") {
        options.push(("sinceTime", since_time(time)?));
    }
    if call.server.features.has(SPLIT_STREAMS) {
        options.push(("stream", query.get("stream").unwrap_or("All").to_owned()));
    }
    let (namespace, name) = (metadata.text("namespace"), metadata.text("name"));
    Ok(Location {
        scheme: "https",
        host,
        path: format!("/containerLogs/{namespace}/{name}/{container}"),
        query: escape::query(options.iter().map(|(name, value)| (*name, value.as_str()))),
    })
}

/// Reads a time in a query: RFC 3339, or nothing for the beginning of all times. Returns it in whole seconds.
fn since_time(text: &str) -> Result<String, Status> {
    if matches!(text, "" | "null") {
        return Ok("0001-01-01T00:00:00Z".into());
    }
    let time: Timestamp = text.parse().map_err(|_| {
        let why = format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        );
        Status::bad_request(why)
    })?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn check_options(call: &Call<'_>, name: &str) -> Result<(), Status> {
    let number = |field: &str| call.query.number(field).map_err(Status::bad_request);
    let mut errors = Errors::default();
    let tail_lines = number("tailLines")?;
    if let Some(lines) = tail_lines.filter(|lines| *lines < 0) {
        errors.invalid(&Path::root("tailLines"), lines, crate::validation::NEGATIVE);
    }
    if let Some(bytes) = number("limitBytes")?.filter(|bytes| *bytes < 1) {
        errors.invalid(&Path::root("limitBytes"), bytes, "must be greater than 0");
    }
    let since_time = call.query.get("sinceTime").map(since_time).transpose()?;
    match (number("sinceSeconds")?, since_time) {
        (Some(_), Some(_)) => {
            let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.forbidden(&Path::root(""), detail);
        }
        (Some(seconds), None) if seconds < 1 => {
            errors.invalid(&Path::root("sinceSeconds"), seconds, "must be greater than 0");
        }
        _ => {}
    }
    check_stream(call, tail_lines.is_some(), &mut errors);
    let of = Named { group: "", resource: "PodLogOptions" };
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(of, name, &errors)) }
}

/// Checks the option that selects stdout or stderr.
fn check_stream(call: &Call<'_>, has_tail_lines: bool, errors: &mut Errors) {
    let Some(stream) = call.query.get("stream") else { return };
    if !call.server.features.has(SPLIT_STREAMS) {
        return errors.forbidden(&Path::root("stream"), "may not be specified");
    }
    if !STREAMS.contains(&stream) {
        errors.not_supported(&Path::root("stream"), stream, &STREAMS);
    }
    if stream != "All" && has_tail_lines {
        let detail = "`tailLines` and specific `stream` are mutually exclusive for now";
        errors.forbidden(&Path::root(""), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_passed_on_in_seconds_of_utc() {
        for (text, expected) in [
            ("2024-05-06T07:08:09Z", "2024-05-06T07:08:09Z"),
            ("2024-05-06T07:08:09.123456789+02:00", "2024-05-06T05:08:09Z"),
            ("", "0001-01-01T00:00:00Z"),
            ("null", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(since_time(text).unwrap(), expected, "{text}");
        }
        assert_eq!(since_time("yesterday").unwrap_err().code, 400);
    }
}
