//! Ports that pods want on their node itself. Pure.

use serde::Deserialize;

/// A port of a container; one without `host_port` is its own business.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    pub host_port: u16,
    pub protocol: String,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
}

impl Port {
    /// Two ports clash on the same address, or if either is on all of them.
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
