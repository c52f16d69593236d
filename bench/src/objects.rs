//! The cost of ingesting an encoded pod, and of reading it.

use std::hint::black_box;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use setpoint::Object;

use crate::pods::pod;
use crate::report::{Report, per_call};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "what is measured is its decoding")]
struct Assigned {
    spec: Spec,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "what is measured is its decoding")]
struct Spec {
    #[serde(default)]
    node_name: String,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what is measured is its decoding")]
struct Status {
    #[serde(default)]
    phase: String,
}

setpoint::view!(Assigned of Pod);

pub(crate) fn run() {
    let raw = Bytes::from(pod(7, 7));
    let managed = Bytes::from(pod(7, 7).replacen(
        "\"name\"",
        &format!(
            "\"managedFields\":[{{\"manager\":\"m\",\"fieldsV1\":{{\"f:x\":\"{}\"}}}}],\"name\"",
            "y".repeat(1500)
        ),
        1,
    ));
    let mut report = Report::new(&format!("One pod of {} bytes", raw.len()), &["ns"]);
    let object = || Object::from_json(raw.clone()).expect("a pod");
    report.row("metadata read, the rest skipped", [per_call(20_000, &object)]);
    report.row(
        "managed fields left out (1.5 KB of them), metadata read",
        [per_call(20_000, || Object::stripped(&managed).expect("a pod"))],
    );
    report.row(
        "a view of two fields decoded",
        [per_call(20_000, || {
            object().view::<Assigned>().map(|view| view.spec.node_name.len()).expect("a view")
        })],
    );
    report.row(
        "k8s-openapi's Pod decoded",
        [per_call(5_000, || serde_json::from_slice::<Pod>(&raw).expect("a pod"))],
    );
    let read = object();
    report.row("a view read again", [per_call(1_000_000, || black_box(read.view::<Assigned>().is_ok()))]);
    report.print();
}
