//! The kubeconfig that `setpoint up` writes.

use std::path::Path;

use serde_json::json;

use crate::pki::write_private;

/// The contents of a kubeconfig. Certificates and keys are PEM.
pub(crate) struct Access<'a> {
    pub(crate) server: &'a str,
    pub(crate) certificate_authority: &'a str,
    pub(crate) client_certificate: &'a str,
    pub(crate) client_key: &'a str,
    /// The expected name in the server's certificate, if it differs from the host in the server's address.
    pub(crate) server_name: Option<&'a str>,
}

/// Writes the kubeconfig, which contains a private key.
pub(crate) fn write(path: &Path, access: &Access<'_>) -> anyhow::Result<()> {
    write_private(path, &render(access))
}

/// JSON is valid YAML, and kubectl reads both.
fn render(access: &Access<'_>) -> String {
    let mut config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "setpoint",
        "clusters": [{"name": "setpoint", "cluster": {
            "server": access.server,
            "certificate-authority-data": base64(access.certificate_authority),
        }}],
        "users": [{"name": "setpoint-admin", "user": {
            "client-certificate-data": base64(access.client_certificate),
            "client-key-data": base64(access.client_key),
        }}],
        "contexts": [{"name": "setpoint", "context": {"cluster": "setpoint", "user": "setpoint-admin"}}],
    });
    if let Some(name) = access.server_name {
        config["clusters"][0]["cluster"]["tls-server-name"] = name.into();
    }
    format!("{config:#}\n")
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}
