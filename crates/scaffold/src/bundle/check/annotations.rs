//! `metadata/annotations.yaml`: the format, the package and its channels.

use serde_json::Value;

use super::{Findings, is_subdomain, text};

const PREFIX: &str = "operators.operatorframework.io.bundle";

pub(super) fn check(file: Option<&String>, findings: &mut Findings<'_>) {
    let Some(file) = file else { return findings.error("expected this file") };
    let document: Value = match serde_saphyr::from_str(file) {
        Ok(document) => document,
        Err(error) => return findings.error(format!("expected YAML: {error}")),
    };
    let annotation = |name: &str| text(&document["annotations"][format!("{PREFIX}.{name}")]).to_owned();
    let fixed =
        [("mediatype.v1", "registry+v1"), ("manifests.v1", "manifests/"), ("metadata.v1", "metadata/")];
    for (name, expected) in fixed {
        let given = annotation(name);
        findings.expect(given == expected, || {
            format!("annotations.{PREFIX}.{name}: expected {expected}, not {given:?}")
        });
    }
    let package = annotation("package.v1");
    findings.expect(is_subdomain(&package), || {
        format!("annotations.{PREFIX}.package.v1: expected the name of the operator, not {package:?}")
    });
    let channels = annotation("channels.v1");
    let channels: Vec<&str> = channels.split(',').map(str::trim).collect();
    for channel in &channels {
        findings.expect(is_channel(channel), || {
            format!("annotations.{PREFIX}.channels.v1: expected names such as stable, separated by commas, not {channel:?}")
        });
    }
    let default = annotation("channel.default.v1");
    if default.is_empty() {
        findings.warning(format!("annotations.{PREFIX}.channel.default.v1: expected one of the channels"));
    } else {
        findings.expect(channels.contains(&default.as_str()), || {
            format!(
                "annotations.{PREFIX}.channel.default.v1: expected one of {}, not {default:?}",
                channels.join(", ")
            )
        });
    }
}

fn is_channel(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}
