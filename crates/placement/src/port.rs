//! Host ports. Pure.

use serde::Deserialize;

/// A container port. Only relevant here if it has a `host_port`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    pub host_port: u16,
    pub protocol: String,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
}

impl Port {
    /// Ports conflict on the same address, or if either is on all addresses.
    pub fn clashes_with(&self, other: &Self) -> bool {
        let anywhere = |port: &Self| port.host_ip.is_empty() || port.host_ip == "0.0.0.0";
        self.host_port == other.host_port
            && self.protocol() == other.protocol()
            && (anywhere(self) || anywhere(other) || self.host_ip == other.host_ip)
    }

    fn protocol(&self) -> &str {
        if self.protocol.is_empty() { "TCP" } else { &self.protocol }
    }
}
