//! `setpoint why`: why an object has not converged, on any cluster.
//!
//! Exits with 0 if it has converged, 1 if not, and 2 for an error. Also runs as `kubectl setpoint why`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use setpoint::Clock;
use setpoint::discovery::{Discovered, discover};
use setpoint_explain::gather::{self, ClusterSource};
use setpoint_explain::kinds::GroupKind;
use setpoint_explain::model::{Explanation, ObjectRef, State};
use setpoint_explain::render;

use crate::app::connection::Namespaced;
use crate::app::output::{Color, colored, encoded, print};

/// How often `--watch` looks again.
const INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Object to explain: KIND/NAME or KIND NAME. Kinds have the names that kubectl knows, such as deploy.
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    object: Vec<String>,
    #[command(flatten)]
    target: Namespaced,
    /// Output format [default: a tree].
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
    /// Explain again whenever something changes, until the object has converged.
    #[arg(long, short)]
    watch: bool,
}

/// The values of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Yaml,
}

pub(crate) async fn run(arguments: Why) -> ExitCode {
    match explain(&arguments).await {
        Ok(State::Converged) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn explain(arguments: &Why) -> anyhow::Result<State> {
    let (kind, name) = named(&arguments.object)?;
    let connection = arguments.target.connect().await?;
    let discovered = discover(&connection.client).await.context("cannot discover what the cluster serves")?;
    let target = target(&discovered, kind, name, &connection.namespace)?;
    let source = ClusterSource::new(connection.client, discovered);
    let clock = Clock::system();
    let mut shown = String::new();
    loop {
        let explanation = gather::explain(&source, &target, || clock.now()).await;
        // While it is watched, the API server may be away for a moment.
        if !explanation.found && (shown.is_empty() || explanation.state != State::Unknown) {
            bail!("{}", [vec![explanation.headline], explanation.unknown].concat().join("; "));
        }
        if explanation.headline != shown {
            print(&rendered(&explanation, arguments.output, &clock)?)?;
            shown = explanation.headline;
        }
        if !arguments.watch || explanation.state == State::Converged {
            return Ok(explanation.state);
        }
        clock.sleep(INTERVAL).await;
    }
}

/// Splits the arguments into kind and name.
fn named(object: &[String]) -> anyhow::Result<(&str, &str)> {
    let parts = match object {
        [one] => one.split_once('/'),
        [kind, name] if !kind.contains('/') && !name.contains('/') => Some((kind.as_str(), name.as_str())),
        _ => None,
    };
    parts.filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/')).ok_or_else(
        || anyhow!("{}: expected KIND/NAME or KIND NAME, such as deployment/web", object.join(" ")),
    )
}

fn target(discovered: &Discovered, kind: &str, name: &str, namespace: &str) -> anyhow::Result<ObjectRef> {
    let Some(resource) = discovered.named(kind) else {
        let failures = discovered.failures();
        let hint = if failures.is_empty() { String::new() } else { format!(" ({failures})") };
        bail!("the cluster does not serve a resource {kind}{hint}");
    };
    let kind = GroupKind::named(resource.kind.group(), resource.kind.kind());
    Ok(ObjectRef::new(&kind, resource.kind.namespaced().then_some(namespace), name))
}

fn rendered(explanation: &Explanation, format: Option<Format>, clock: &Clock) -> anyhow::Result<String> {
    use crate::app::output::Format as Encoding;
    let encoding = match format {
        None => return Ok(render::tree(explanation, clock.now(), paint)),
        Some(Format::Json) => Encoding::Json,
        Some(Format::Yaml) => Encoding::Yaml,
    };
    encoded(&serde_json::to_value(explanation)?, encoding)
}

fn paint(text: &str, state: State) -> String {
    let color = match state {
        State::Converged => Color::Green,
        State::Progressing | State::Unknown => Color::Yellow,
        State::Blocked | State::Failed => Color::Red,
    };
    colored(text, color)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_in_kubectl() {
        let check = |given: &[&str], expected: Option<(&str, &str)>| {
            let given: Vec<String> = given.iter().map(|one| (*one).to_owned()).collect();
            assert_eq!(named(&given).ok(), expected, "{given:?}");
        };
        check(&["deploy/web"], Some(("deploy", "web")));
        check(&["deployments.apps", "web"], Some(("deployments.apps", "web")));
        check(&["web"], None);
        check(&["deploy/"], None);
        check(&["deploy/a", "b"], None);
        check(&["a/b/c"], None);
    }
}
