//! Validates Windows-specific fields of pods.

use serde_json::Value;

use super::each_container;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::names;
use crate::validation::add_invalid;

const CREDENTIAL_KIB: usize = 64;
const DOMAIN_LENGTH: usize = 256;
const USER_LENGTH: usize = 104;

pub(super) fn check_options(options: &Value, path: &Path<'_>, errors: &mut Errors) {
    if options.is_null() {
        return;
    }
    if let Some(name) = options.at("gmsaCredentialSpecName").as_str() {
        add_invalid(names::dns_subdomain(name), name, &path.child("gmsaCredentialSpecName"), errors);
    }
    let credentials_path = path.child("gmsaCredentialSpec");
    match options.at("gmsaCredentialSpec").as_str() {
        Some("") => errors.invalid(&credentials_path, "", "gmsaCredentialSpec cannot be an empty string"),
        Some(text) if text.len() > CREDENTIAL_KIB << 10 => {
            let detail = format!("gmsaCredentialSpec size must be under {CREDENTIAL_KIB} KiB");
            errors.invalid(&credentials_path, text, detail);
        }
        _ => {}
    }
    if let Some(name) = options.at("runAsUserName").as_str() {
        for complaint in user_name(name) {
            errors.invalid(&path.child("runAsUserName"), name, complaint);
        }
    }
}

/// Returns what is wrong with `DOMAIN\user`.
fn user_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string".into()];
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters".into()];
    }
    let (domain, user) = match name.split('\\').collect::<Vec<_>>().as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec!["runAsUserName cannot contain more than one backslash".into()],
    };
    let mut complaints = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_LENGTH) {
        complaints.push(format!("runAsUserName's Domain length must be under {DOMAIN_LENGTH} characters"));
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        complaints.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".into());
    }
    if user.is_empty() {
        complaints.push("runAsUserName's User cannot be empty".into());
    } else if user.len() > USER_LENGTH {
        complaints
            .push(format!("runAsUserName's User length must not be longer than {USER_LENGTH} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        complaints.push("runAsUserName's User cannot contain only periods or spaces".into());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let detail = "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]";
        complaints.push(detail.into());
    }
    complaints
}

fn is_net_bios(domain: &str) -> bool {
    let bad = |c: char| r#"\/:*?"<>|"#.contains(c);
    (1..=15).contains(&domain.chars().count()) && !domain.starts_with('.') && !domain.chars().any(bad)
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let bytes = label.as_bytes();
        let end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        bytes.len() <= 63
            && end(bytes.first())
            && end(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    })
}

/// Checks that a pod's containers are all HostProcess containers or none, and only in the host's network.
pub(super) fn check_host_process(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let own = |object: &Value| object.at("securityContext").at("windowsOptions").boolean("hostProcess");
    let pod = own(spec);
    let (mut containers, mut host_processes) = (0, 0);
    each_container(spec, path, |container, path| {
        containers += 1;
        let container = own(container);
        if let (Some(pod), Some(container)) = (pod, container)
            && pod != container
        {
            let path = path.child("securityContext");
            let path = path.child("windowsOptions");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&path.child("hostProcess"), container, detail);
        }
        host_processes += usize::from(container.or(pod) == Some(true));
    });
    if host_processes == 0 {
        return;
    }
    if host_processes != containers {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if !spec.flag("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.child("hostNetwork"), false, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_windows_user_may_have_a_domain() {
        for (name, complaints) in [
            ("user", 0),
            ("DOMAIN\\user", 0),
            ("a.example.com\\user", 0),
            ("", 1),
            ("a\\b\\c", 1),
            ("a\tb", 1),
            ("\\user", 1),
            ("DOMAIN\\", 1),
            ("..", 1),
            ("a@b", 1),
        ] {
            assert_eq!(user_name(name).len(), complaints, "{name:?}");
        }
    }
}
