//! What extension API servers need to authenticate the requests that this server forwards: the ConfigMap
//! `extension-apiserver-authentication` in `kube-system`.
//!
//! As in v1.34, this server adds what it needs, keeps existing entries, and removes expired certificates. So several
//! servers can share the ConfigMap, and a CA is published before it is used.

use std::sync::Arc;

use http::Method;
use jiff::{Timestamp, ToSpan};
use serde_json::{Map, Value, json};
use setpoint_store::{Range, Resource};

use crate::json::Json;
use crate::metadata;
use crate::registry::Gvr;
use crate::server::Server;
use crate::status::Status;
use crate::system_objects;
use crate::tls::{Bundled, bundled, pem};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The CAs that verify clients and front proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTrust {
    /// The CAs of client certificates, as PEM.
    pub client_ca: String,
    pub front_proxy: Option<FrontProxyTrust>,
}

/// How front proxies are recognized, and the headers in which they pass the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxyTrust {
    /// As PEM.
    pub ca: String,
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

/// Returns the current trust. It may change while the server runs.
pub type TrustSource = Arc<dyn Fn() -> ClusterTrust + Send + Sync>;

/// The ConfigMap in the store.
pub(super) fn range() -> Range {
    Resource::new("configmaps").only(format!("{NAMESPACE}/{NAME}"))
}

/// Publishes the trust, if parts of it are missing.
pub(crate) async fn publish(server: &Server) {
    let Some(source) = &server.aggregation.trust else { return };
    if let Err(why) = try_publish(server, &source()).await {
        tracing::warn!(why = why.message, "cannot publish how extension API servers authenticate requests");
    }
}

async fn try_publish(server: &Server, trust: &ClusterTrust) -> Result<(), Status> {
    let maps = Gvr::new("", "v1", "configmaps");
    let Ok(served) = server.served(&maps) else { return Ok(()) };
    let found = server.store.get(&served.key(Some(NAMESPACE), NAME), None).await;
    let Some(record) = found.map_err(|why| server.refusal(why))? else {
        let data = combined(&Map::new(), trust, server.now())?;
        if data.is_empty() {
            return Ok(());
        }
        let map = json!({"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data});
        let collection = system_objects::path(&maps, NAMESPACE, "");
        // The namespace is about to be created; retried in the next round.
        return server.loopback_request(Method::POST, &collection, &map, &[404, 409]).await.map(drop);
    };
    let map = served.decode_bare(&record)?;
    let known = map.map("data").cloned().unwrap_or_default();
    let data = combined(&known, trust, server.now())?;
    if metadata::of(&map).has("deletionTimestamp") || known == data {
        return Ok(());
    }
    replace(server, &system_objects::path(&maps, NAMESPACE, NAME), map, data).await
}

async fn replace(
    server: &Server,
    path: &str,
    mut map: Value,
    data: Map<String, Value>,
) -> Result<(), Status> {
    map["data"] = Value::Object(data);
    match server.loopback_request(Method::PUT, path, &map, &[404, 409]).await {
        // Another server has changed it; retried in the next round.
        Err(why) if why.message.contains("Too long") || why.message.contains("too large") => {
            server.loopback_request(Method::DELETE, path, &Value::Null, &[404]).await?;
            Err(why)
        }
        outcome => outcome.map(drop),
    }
}

/// Returns the data of the ConfigMap: existing entries plus required ones.
fn combined(
    known: &Map<String, Value>,
    trust: &ClusterTrust,
    now: Timestamp,
) -> Result<Map<String, Value>, Status> {
    let mut data = Map::new();
    let client_ca = certificates(text(known, "client-ca-file"), &trust.client_ca, now)?;
    if !client_ca.is_empty() {
        data.insert("client-ca-file".into(), client_ca.into());
    }
    let none = FrontProxyTrust::default();
    let proxy = trust.front_proxy.as_ref().unwrap_or(&none);
    let ca = certificates(text(known, "requestheader-client-ca-file"), &proxy.ca, now)?;
    if ca.is_empty() {
        return Ok(data);
    }
    data.insert("requestheader-client-ca-file".into(), ca.into());
    for (key, required) in [
        ("requestheader-username-headers", &proxy.username_headers),
        ("requestheader-uid-headers", &proxy.uid_headers),
        ("requestheader-group-headers", &proxy.group_headers),
        ("requestheader-extra-headers-prefix", &proxy.extra_prefixes),
        ("requestheader-allowed-names", &proxy.allowed_names),
    ] {
        let names = names(text(known, key), required)?;
        if key != "requestheader-uid-headers" || !names.is_empty() {
            data.insert(key.into(), json!(names).to_string().into());
        }
    }
    Ok(data)
}

fn text<'a>(data: &'a Map<String, Value>, key: &str) -> &'a str {
    data.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Joins two lists, the first of which is JSON.
fn names(known: &str, required: &[String]) -> Result<Vec<String>, Status> {
    let mut names: Vec<String> = match known {
        "" => Vec::new(),
        known => serde_json::from_str(known).map_err(Status::internal)?,
    };
    names.extend(required.iter().cloned());
    let mut joined: Vec<String> = Vec::new();
    for name in names {
        if !joined.contains(&name) {
            joined.push(name);
        }
    }
    Ok(joined)
}

/// Joins two bundles, without expired certificates. Clocks may differ by five minutes.
fn certificates(known: &str, required: &str, now: Timestamp) -> Result<String, Status> {
    let oldest = now.checked_sub(5.minutes()).unwrap_or(now);
    let mut all: Vec<Bundled> = Vec::new();
    for bundle in [known, required].into_iter().filter(|bundle| !bundle.is_empty()) {
        for certificate in bundled(bundle).map_err(Status::internal)? {
            if certificate.not_after > oldest && all.iter().all(|one| one.der != certificate.der) {
                all.push(certificate);
            }
        }
    }
    Ok(all.iter().map(|certificate| pem(&certificate.der)).collect())
}

#[cfg(test)]
mod tests {
    use crate::tls::Authority;

    use super::*;

    fn now() -> Timestamp {
        "2025-03-04T05:06:07Z".parse().unwrap()
    }

    fn ca() -> String {
        Authority::generate(now()).unwrap().identity().certificate.clone()
    }

    #[test]
    fn published_authorities_are_kept_and_missing_ones_added() {
        let (old, new, proxy) = (ca(), ca(), ca());
        let front_proxy = FrontProxyTrust {
            ca: proxy.clone(),
            allowed_names: vec!["front-proxy-client".into()],
            username_headers: vec!["X-Remote-User".into()],
            group_headers: vec!["X-Remote-Group".into()],
            ..FrontProxyTrust::default()
        };
        let trust = ClusterTrust { client_ca: new.clone(), front_proxy: Some(front_proxy) };
        let known =
            json!({"client-ca-file": old, "requestheader-username-headers": r#"["X-Other"]"#, "extra": "x"});
        let data = combined(known.as_object().unwrap(), &trust, now()).unwrap();
        let has = |key: &str, part: &str| {
            let text = text(&data, key);
            assert!(text.replace('\r', "").contains(part.replace('\r', "").trim()), "{key}: {text}");
        };
        has("client-ca-file", &old);
        has("client-ca-file", &new);
        has("requestheader-client-ca-file", &proxy);
        assert_eq!(text(&data, "requestheader-username-headers"), r#"["X-Other","X-Remote-User"]"#);
        assert_eq!(text(&data, "requestheader-extra-headers-prefix"), "[]");
        assert_eq!(text(&data, "requestheader-allowed-names"), r#"["front-proxy-client"]"#);
        assert!(!data.contains_key("requestheader-uid-headers") && !data.contains_key("extra"));
        assert_eq!(combined(&data, &trust, now()).unwrap(), data, "a second run changes nothing");
        let later = now().checked_add((24 * 366 * 11).hours()).unwrap();
        assert!(combined(&data, &ClusterTrust::default(), later).unwrap().is_empty(), "all have expired");
    }

    #[test]
    fn without_front_proxies_only_clients_are_verified() {
        let trust = ClusterTrust { client_ca: ca(), front_proxy: None };
        let data = combined(&Map::new(), &trust, now()).unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), ["client-ca-file"]);
        assert!(combined(&Map::new(), &ClusterTrust::default(), now()).unwrap().is_empty());
    }
}
