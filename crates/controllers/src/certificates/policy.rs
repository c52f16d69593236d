//! Which requests each signer accepts.

use super::request::Request;

pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(super) const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const CLIENT_AUTH: &str = "client auth";
const SERVER_AUTH: &str = "server auth";

/// Returns why a signer refuses a request, as a message for the requester.
pub(super) fn refusal(signer: &str, request: &Request, usages: &[String]) -> Result<(), String> {
    match signer {
        KUBELET_SERVING => kubelet_serving(request, usages),
        KUBELET_CLIENT => kubelet_client(request, usages),
        CLIENT => client(usages),
        _ => Ok(()),
    }
}

/// Whether the request is for a kubelet client certificate.
pub(super) fn is_kubelet_client(request: &Request, usages: &[String]) -> bool {
    kubelet_client(request, usages).is_ok()
}

fn kubelet_serving(request: &Request, usages: &[String]) -> Result<(), String> {
    is_of_nodes(request)?;
    if request.dns_names.is_empty() && request.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".into());
    }
    none(&request.emails, "Email")?;
    none(&request.uris, "URI")?;
    are_used(usages, SERVER_AUTH)?;
    is_named_as_node(request)
}

fn kubelet_client(request: &Request, usages: &[String]) -> Result<(), String> {
    is_of_nodes(request)?;
    none(&request.dns_names, "DNS")?;
    none(&request.emails, "Email")?;
    none(&request.addresses, "IP")?;
    none(&request.uris, "URI")?;
    is_named_as_node(request)?;
    are_used(usages, CLIENT_AUTH)
}

fn client(usages: &[String]) -> Result<(), String> {
    let optional = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, CLIENT_AUTH];
    if let Some(other) = usages.iter().find(|usage| !optional.contains(&usage.as_str())) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    match usages.iter().any(|usage| usage == CLIENT_AUTH) {
        true => Ok(()),
        false => Err(format!("missing required usage for client certificate: {CLIENT_AUTH}")),
    }
}

fn is_of_nodes(request: &Request) -> Result<(), String> {
    match &request.organizations[..] {
        [one] if one == "system:nodes" => Ok(()),
        _ => Err("subject organization is not system:nodes".into()),
    }
}

fn is_named_as_node(request: &Request) -> Result<(), String> {
    match request.common_name.strip_prefix("system:node:") {
        // Stricter than v1.34, which would sign this: a node without a name cannot use its certificate.
        Some("") => Err("subject common name names no node after system:node:".into()),
        Some(_) => Ok(()),
        None => Err("subject common name does not begin with system:node:".into()),
    }
}

fn none<T>(names: &[T], what: &str) -> Result<(), String> {
    match names.is_empty() {
        true => Ok(()),
        false => Err(format!("{what} subjectAltNames are not allowed")),
    }
}

/// Requires digital signature and the role's usage; key encipherment (for RSA) is optional.
fn are_used(usages: &[String], role: &str) -> Result<(), String> {
    let has = |usage: &str| usages.iter().any(|used| used == usage);
    let known = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, role];
    let nothing_else = usages.iter().all(|usage| known.contains(&usage.as_str()));
    match has(DIGITAL_SIGNATURE) && has(role) && nothing_else {
        true => Ok(()),
        false => {
            let mut all = known;
            all.sort_unstable();
            Err(format!("usages did not match [{}]", all.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Request {
        Request {
            common_name: "system:node:n".into(),
            organizations: vec!["system:nodes".into()],
            ..Request::default()
        }
    }

    #[track_caller]
    fn check(signer: &str, request: &Request, usages: &[&str], expected: Result<(), &str>) {
        let usages: Vec<String> = usages.iter().map(|usage| (*usage).to_owned()).collect();
        assert_eq!(refusal(signer, request, &usages), expected.map_err(str::to_owned));
    }

    #[test]
    fn a_kubelet_gets_a_client_certificate_in_its_own_name_alone() {
        let usages = ["digital signature", "client auth"];
        check(KUBELET_CLIENT, &node(), &usages, Ok(()));
        check(KUBELET_CLIENT, &node(), &["key encipherment", "digital signature", "client auth"], Ok(()));
        let other = Request { organizations: vec!["dev".into()], ..node() };
        check(KUBELET_CLIENT, &other, &usages, Err("subject organization is not system:nodes"));
        let named = Request { dns_names: vec!["n".into()], ..node() };
        check(KUBELET_CLIENT, &named, &usages, Err("DNS subjectAltNames are not allowed"));
        let user = Request { common_name: "n".into(), ..node() };
        check(KUBELET_CLIENT, &user, &usages, Err("subject common name does not begin with system:node:"));
        let nameless = Request { common_name: "system:node:".into(), ..node() };
        check(
            KUBELET_CLIENT,
            &nameless,
            &usages,
            Err("subject common name names no node after system:node:"),
        );
        let expected = "usages did not match [client auth digital signature key encipherment]";
        check(KUBELET_CLIENT, &node(), &["client auth"], Err(expected));
    }

    #[test]
    fn a_kubelet_gets_a_serving_certificate_for_names_or_addresses() {
        let usages = ["digital signature", "server auth"];
        check(KUBELET_SERVING, &node(), &usages, Err("DNS or IP subjectAltName is required"));
        let named = Request { dns_names: vec!["n".into()], ..node() };
        check(KUBELET_SERVING, &named, &usages, Ok(()));
        let email = Request { emails: vec!["a@b".into()], ..named.clone() };
        check(KUBELET_SERVING, &email, &usages, Err("Email subjectAltNames are not allowed"));
        let expected = "usages did not match [digital signature key encipherment server auth]";
        check(KUBELET_SERVING, &named, &["server auth", "client auth"], Err(expected));
    }

    #[test]
    fn a_client_certificate_is_for_clients() {
        let any = Request::default();
        check(CLIENT, &any, &["client auth"], Ok(()));
        check(CLIENT, &any, &["server auth"], Err("invalid usage for client certificate: server auth"));
        let missing = "missing required usage for client certificate: client auth";
        check(CLIENT, &any, &["digital signature"], Err(missing));
        check(LEGACY_UNKNOWN, &any, &["cert sign"], Ok(()));
    }
}
