//! Images that cannot be pulled: a wrong name, missing or wrong credentials, an unreachable registry.

use serde_json::Value;

use super::containers::Container;
use crate::inquiry::Inquiry;
use crate::kinds::{SECRET, SERVICE_ACCOUNT};
use crate::model::{Evidence, Node, ObjectRef};
use crate::read::Read;
use crate::snapshot::Item;
use crate::text::clip;

pub(super) fn explain<'a>(
    inquiry: &Inquiry<'a>,
    pod: &'a Item,
    node: Node,
    container: Container<'a>,
) -> Node {
    let (image, reason) = (container.image(), container.status.text("/state/waiting/reason"));
    let event = inquiry.events(pod).into_iter().find(|event| {
        event.is_warning() && event.message().contains(image) && event.message().len() > image.len() + 30
    });
    let said = match (event, container.status.text("/state/waiting/message")) {
        (Some(event), message) if message.starts_with("Back-off") || message.is_empty() => event.message(),
        (_, message) => message,
    };
    // Names, tags and digests may contain the words that classify a message.
    let plain = said.replace(image, "");
    let secrets = problem_of_secrets(inquiry, pod, image);
    // These two alternate as long as the image cannot be pulled.
    let shown = if reason == "ErrImagePull" { "ErrImagePull, ImagePullBackOff" } else { reason };
    let (what, fix) = cause(reason, &plain, said);
    let text = format!("the image {image} of {} cannot be pulled ({shown}): {what}", container.title());
    let text = match secrets.first() {
        Some(secret) => format!("{text}; {}", secret.summary),
        None => text,
    };
    let evidence = event.map(|event| inquiry.evidence(&event));
    let policy = container.spec.text("/imagePullPolicy");
    let node = node
        .blocked(text, fix)
        .evidence(evidence)
        .evidence([Evidence::field("status", format!("{reason}: {}", clip(said)))])
        .evidence((policy == "Never").then(|| Evidence::field("imagePullPolicy", policy)));
    let blamed = is_about_credentials(&plain);
    let children = secrets.into_iter().filter(|_| blamed);
    match reason {
        "InvalidImageName" | "ErrImageNeverPull" => node,
        _ => node.next("the kubelet retries with a backoff of at most 5 minutes", None),
    }
    .children(children)
}

/// Returns why a pull failed, and the fix. `said` is the message without the image, and `whole` with it.
fn cause(reason: &str, said: &str, whole: &str) -> (String, String) {
    let short = clip(whole);
    let (what, fix) = match reason {
        "InvalidImageName" => ("its name is not valid", "correct spec.containers[].image"),
        "ErrImageNeverPull" => (
            "it is not on the node, and imagePullPolicy is Never",
            "load it on the node, or set imagePullPolicy: IfNotPresent",
        ),
        _ if is_about_credentials(said) => (
            "the registry refuses access",
            "correct the name of the image, or give the pod an imagePullSecret with access to it",
        ),
        _ if is_about_name(said) => {
            ("the registry has no such image", "correct the name or the tag of the image, or push it")
        }
        _ if is_about_rate(said) => {
            ("the registry limits the rate of pulls", "pull with credentials, or from a mirror")
        }
        _ if said.contains("no match for platform") || said.contains("no matching manifest") => (
            "it does not exist for the platform of the node",
            "push it for that platform, or select other nodes",
        ),
        _ if said.contains("x509") || said.contains("certificate") => {
            ("the certificate of the registry is not trusted", "make the node trust the CA of the registry")
        }
        _ if is_about_network(said) => {
            ("the registry cannot be reached", "check the name of the registry and the node's network")
        }
        _ => ("", "correct the name of the image, its credentials, or the registry"),
    };
    let what = match what {
        "" => short,
        what => format!("{what}: {short}"),
    };
    (what, fix.to_owned())
}

fn contains_any(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|word| text.contains(word))
}

fn is_about_credentials(said: &str) -> bool {
    contains_any(
        said,
        &["unauthorized", "authentication required", "denied", "403 forbidden", "401", "credential"],
    )
}

fn is_about_name(said: &str) -> bool {
    contains_any(said, &["not found", "manifest unknown", "does not exist", "not_found", "name unknown"])
}

fn is_about_rate(said: &str) -> bool {
    contains_any(said, &["toomanyrequests", "rate limit", "429"])
}

fn is_about_network(said: &str) -> bool {
    contains_any(
        said,
        &[
            "no such host",
            "timeout",
            "connection refused",
            "dial tcp",
            "deadline exceeded",
            "network is unreachable",
            "eof",
        ],
    )
}

/// Returns the problems of the pod's pull secrets, each as an object.
fn problem_of_secrets<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, image: &str) -> Vec<Node> {
    let account = match pod.text("/spec/serviceAccountName") {
        "" => "default",
        name => name,
    };
    let account = inquiry.get(&SERVICE_ACCOUNT, pod.namespace(), account).found();
    let own = pod.items("/spec/imagePullSecrets");
    let of_account = account.map(|account| account.items("/imagePullSecrets")).unwrap_or_default();
    let names =
        own.iter().chain(of_account).map(|secret| secret.text("/name")).filter(|name| !name.is_empty());
    names.filter_map(|name| problem_of_secret(inquiry, pod, name, image)).collect()
}

fn problem_of_secret<'a>(inquiry: &Inquiry<'a>, pod: &'a Item, name: &str, image: &str) -> Option<Node> {
    let node = Node::new(ObjectRef::new(&SECRET, pod.namespace(), name));
    let found = inquiry.get(&SECRET, pod.namespace(), name);
    if found.is_missing() {
        let text = format!("the imagePullSecret {name} does not exist");
        return Some(node.blocked(text, "create it with kubectl create secret docker-registry"));
    }
    let secret = found.found()?;
    let expected = ["kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"];
    if !expected.contains(&secret.text("/type")) {
        let text = format!("the imagePullSecret {name} has type {}", secret.text("/type"));
        return Some(node.blocked(text, format!("recreate it with type {}", expected[0])));
    }
    let registries = registries(secret)?;
    let wanted = registry(image);
    let has = registries
        .iter()
        .any(|one| one.contains(wanted) || (wanted == "docker.io" && one.contains("docker.io")));
    (!has).then(|| {
        let text = format!("the imagePullSecret {name} has no credentials for {wanted}");
        node.blocked(text, format!("add credentials for {wanted}"))
    })
}

/// Returns the registries that a Secret has credentials for.
fn registries(secret: &Item) -> Option<Vec<String>> {
    let encoded = secret.text("/data/.dockerconfigjson");
    let decoded = decode_base64(encoded)?;
    let config: Value = serde_json::from_slice(&decoded).ok()?;
    Some(config.at("/auths").as_object()?.keys().cloned().collect())
}

/// Returns the registry of an image: the part before the first slash, if it looks like a host.
fn registry(image: &str) -> &str {
    let first = image.split_once('/').map_or("", |(first, _)| first);
    if first.contains(['.', ':']) || first == "localhost" { first } else { "docker.io" }
}

/// Decodes base64 with padding, as the API has it.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => Some(u32::from(letter - b'A')),
        b'a'..=b'z' => Some(u32::from(letter - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(letter - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk.iter().try_fold(0, |bits, letter| Some(bits << 6 | value(*letter)?))?;
        let bits = bits << (6 * (4 - chunk.len()));
        decoded.extend(bits.to_be_bytes()[1..chunk.len()].iter());
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_runtimes_are_told_apart() {
        for (said, expected) in [
            ("manifest for nginx:9 not found: manifest unknown", "no such image"),
            ("pull access denied, repository does not exist or may require authorization", "refuses access"),
            ("failed to authorize: 401 Unauthorized", "refuses access"),
            ("dial tcp: lookup registry.local: no such host", "cannot be reached"),
            ("toomanyrequests: You have reached your pull rate limit", "limits the rate"),
            ("no match for platform in manifest", "platform"),
            ("x509: certificate signed by unknown authority", "not trusted"),
        ] {
            let (what, _) = cause("ErrImagePull", said, said);
            assert!(what.contains(expected), "{said}: {what}");
        }
    }

    #[test]
    fn the_registry_of_an_image_is_its_first_part() {
        for (image, expected) in [
            ("nginx", "docker.io"),
            ("a/b:1", "docker.io"),
            ("quay.io/a/b", "quay.io"),
            ("h:5000/a", "h:5000"),
        ] {
            assert_eq!(registry(image), expected);
        }
        assert_eq!(decode_base64("eyJhIjoxfQ==").as_deref(), Some(&br#"{"a":1}"#[..]));
        assert_eq!(decode_base64("a*"), None);
    }
}
