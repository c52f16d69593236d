//! Determines the program of a container from its command and image. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;

use super::environment::{MAX_BYTES, expand};
use crate::process::base_name;
use crate::shell::{List, command};

/// What is known about the program of a container before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Entrypoint {
    /// Nothing: it is the entrypoint of an image.
    #[default]
    Unknown,
    /// The entrypoint of an image that is known to run until it is stopped.
    Server,
    /// A command, or a shell that someone may attach to.
    Command,
}

/// Images that only have a shell: their arguments are a command.
const SHELLS: [&str; 4] = ["alpine", "busybox", "debian", "ubuntu"];

/// Images that are known to run until they are stopped.
const SERVERS: [&str; 14] = [
    "caddy",
    "envoy",
    "haproxy",
    "httpd",
    "mariadb",
    "memcached",
    "mongo",
    "mysql",
    "nginx",
    "pause",
    "postgres",
    "rabbitmq",
    "redis",
    "traefik",
];

impl Entrypoint {
    /// `is_interactive` means that the container has a terminal and reads from it: most likely a shell. `has_ports` means
    /// that it declares ports: most likely a server, and the image stands in for its own.
    pub(crate) fn of(
        image: &str,
        command: &[String],
        args: &[String],
        is_interactive: bool,
        has_ports: bool,
    ) -> Self {
        let name = image_name(image);
        let has_shell_only = SHELLS.contains(&name) && !(has_ports && args.is_empty());
        // Arguments are for the image's entrypoint, unless they name a program themselves.
        let names_program = args.first().is_some_and(|first| first.starts_with("/bin/") || first == "sh");
        if !command.is_empty() || has_shell_only || names_program || is_interactive {
            return Self::Command;
        }
        if SERVERS.contains(&name) && args.is_empty() { Self::Server } else { Self::Unknown }
    }
}

/// Returns the last part of an image's name, without tag and digest.
fn image_name(image: &str) -> &str {
    let name = base_name(image.split('@').next().unwrap_or(image));
    name.split(':').next().unwrap_or(name)
}

/// Returns the script that a container runs. `None` if it is not known, or too long.
pub(crate) fn script(container: &Container, environment: &BTreeMap<String, String>) -> Option<List> {
    let (own, args) =
        (container.command.as_deref().unwrap_or_default(), container.args.as_deref().unwrap_or_default());
    let image = container.image.as_deref().unwrap_or_default();
    let is_interactive = container.stdin == Some(true) && container.tty == Some(true);
    let has_ports = container.ports.as_ref().is_some_and(|ports| !ports.is_empty());
    if Entrypoint::of(image, own, args, is_interactive, has_ports) != Entrypoint::Command {
        return None;
    }
    let (mut words, mut left) = (Vec::new(), MAX_BYTES);
    for word in own.iter().chain(args) {
        let expanded = expand(word, left, |name| environment.get(name).map(String::as_str))?;
        left -= expanded.len();
        words.push(expanded);
    }
    if words.is_empty() {
        words.push("sh".to_owned());
    }
    Some(command(&words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_not_known_if_its_variables_make_it_too_long() {
        let environment = BTreeMap::from([("A".to_owned(), "x".repeat(1000))]);
        let of = |repeated: usize| {
            let word = "$(A)".repeat(100);
            let command = Some(vec![word; repeated]);
            script(&Container { command, ..Container::default() }, &environment)
        };
        assert!(of(10).is_some());
        assert!(of(11).is_none());
    }
}
