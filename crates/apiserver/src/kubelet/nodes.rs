//! The addresses of kubelets, as reported by nodes, and which of them may be proxied to.

use std::net::IpAddr;

use serde_json::Value;
use setpoint_webhook::Dial;

use super::Kubelets;
use crate::json::Json;
use crate::status::Status;

/// The address of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kubelet {
    /// A name or an address.
    pub(crate) host: String,
    pub(crate) port: i64,
}

impl Kubelet {
    /// Host and port, as in URLs.
    pub(crate) fn authority(&self) -> String {
        join(&self.host, self.port)
    }
}

/// Joins a host and a port, as in URLs.
pub(crate) fn join(host: &str, port: impl std::fmt::Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Kubelets {
    /// Finds the kubelet of a node from the node's status.
    pub(crate) fn find(&self, node: &Value) -> Result<Kubelet, Status> {
        let status = node.at("status");
        let addresses = status.list("addresses");
        let of_type = |wanted: &String| addresses.iter().find(|address| address.text("type") == wanted);
        let Some(address) = self.config.address_types.iter().find_map(of_type) else {
            let shown = |address: &Value| format!("{{{} {}}}", address.text("type"), address.text("address"));
            let known: Vec<String> = addresses.iter().map(shown).collect();
            let why = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
            return Err(Status::unknown(why));
        };
        let port = status.at("daemonEndpoints").at("kubeletEndpoint").int("Port").filter(|port| *port > 0);
        let port = port.unwrap_or(i64::from(self.config.port));
        Ok(Kubelet { host: address.text("address").to_owned(), port })
    }

    /// Checks that requests may be proxied to a node.
    pub(crate) async fn check_node(&self, host: &str) -> Result<(), Status> {
        check_proxyable(&*self.dial, host).await
    }
}

/// Checks that requests may be proxied to a host: all its addresses must be routable unicast addresses.
pub(crate) async fn check_proxyable(dial: &dyn Dial, host: &str) -> Result<(), Status> {
    if dial.is_in_process(host) {
        return Ok(());
    }
    let unknown = |why: std::io::Error| Status::bad_request(format!("lookup {host}: {why}"));
    let mut addresses = tokio::net::lookup_host((host, 0)).await.map_err(unknown)?.peekable();
    if addresses.peek().is_none() {
        return Err(Status::bad_request("no addresses for hostname"));
    }
    match addresses.all(|address| is_proxyable(address.ip())) {
        true => Ok(()),
        false => Err(Status::bad_request("address not allowed")),
    }
}

/// Whether requests may be proxied to an address: not loopback, link-local or multicast.
pub(crate) fn is_proxyable(address: IpAddr) -> bool {
    let is_local = match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let address = address.to_canonical();
    !is_local && !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use setpoint_webhook::in_process::InProcess;

    use super::super::KubeletConfig;
    use super::*;

    #[test]
    fn a_kubelet_is_found_by_the_preferred_address_and_the_reported_port() {
        let kubelets = Kubelets::new(KubeletConfig::default(), Arc::new(InProcess::default()));
        let node = |addresses: Value, port: i64| {
            let endpoint = json!({"kubeletEndpoint": {"Port": port}});
            json!({"status": {"addresses": addresses, "daemonEndpoints": endpoint}})
        };
        let both =
            json!([{"type": "InternalIP", "address": "fd00::1"}, {"type": "Hostname", "address": "n"}]);
        assert_eq!(kubelets.find(&node(both.clone(), 7)).unwrap().authority(), "n:7");
        let config = KubeletConfig { address_types: vec!["InternalIP".into()], ..KubeletConfig::default() };
        let by_ip = Kubelets::new(config, Arc::new(InProcess::default()));
        assert_eq!(by_ip.find(&node(both, 0)).unwrap().authority(), "[fd00::1]:10250");
        let other = json!([{"type": "Pigeon", "address": "loft"}]);
        let why = "no preferred addresses found; known addresses: [{Pigeon loft}]";
        assert_eq!(kubelets.find(&node(other, 0)).unwrap_err().message, why);
    }

    #[test]
    fn only_ordinary_addresses_are_proxied_to() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(is_proxyable(address.parse().unwrap()), expected, "{address}");
        }
    }
}
