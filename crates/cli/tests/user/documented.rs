//! The commands in the documentation: those in console blocks are run as written, those in running text have to parse.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use setpoint_example_first_controller as first;
use tokio_util::sync::CancellationToken;

use crate::binary::{Answer, Up, eventually, kubectl};
use crate::operators::operate;

/// The page whose commands belong together: they are run in one shell, with an etcd in the PATH.
const SESSION: &str = "docs/guide/three-servers.md";

/// Commands that are not run as written, and what runs them instead.
const NOT_RUN: &[(&str, &str)] = &[
    ("setpoint up ", "this test runs its own server, and checks the flags"),
    ("KUBECONFIG=kubeconfig cargo run ", "this test runs the controller in its own process"),
    ("tail -f ", "it never ends"),
    ("make ", "the target has to exist"),
    ("kubelet ", "it needs a container runtime"),
    ("skopeo ", "it needs a registry"),
    ("helm ", "`make test-deploy` installs the chart"),
    ("kubectl --namespace kube-system rollout ", "it follows the chart"),
    ("kubectl -n vela-system scale ", "there is no KubeVela to stop"),
    ("setpoint application-manager ", "`applications` runs it with the generated role"),
    ("setpoint app diff ", "its exit code is 1 if something would change; `applications` runs it"),
    ("setpoint why ", "its exit code is 1 if something is stuck; `why` runs it"),
    ("setpoint app rollback ", "it needs an earlier revision; `applications` runs it"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Returns the pages that contain commands.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "README.zh-CN.md"].map(|page| root().join(page)).into();
    for directory in ["docs/guide", "docs/reference"] {
        let entries = fs::read_dir(root().join(directory)).expect("a directory of pages");
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        found.sort();
        pages.extend(found);
    }
    pages
}

/// A command and its documented output.
struct Shown {
    command: String,
    output: String,
}

/// Parses the console blocks of a page.
fn shown(page: &str) -> Vec<Shown> {
    let blocks = page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut found: Vec<Shown> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => {
                let command = command.split("  # ").next().unwrap_or(command).trim().to_owned();
                found.push(Shown { command, output: String::new() });
            }
            (None, Some(last)) => last.output += &format!("{line}\n"),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    found
}

/// A directory that looks like a checkout in which `setpoint up` runs.
struct Checkout {
    directory: tempfile::TempDir,
    up: Up,
}

impl Checkout {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let data = path("setpoint-data");
        let data = data.to_str().expect("a readable path");
        let up = Up::start_with(&["--applications", "--default-storage-class", "--data-dir", data]);
        for name in ["docs", "deploy"] {
            std::os::unix::fs::symlink(root().join(name), path(name)).expect("a link");
        }
        for name in ["setpoint.kubeconfig", "kubeconfig"] {
            fs::copy(up.kubeconfig(), path(name)).expect("a copy of the kubeconfig");
        }
        Self { directory, up }
    }

    fn run(&self, command: &str, variables: &BTreeMap<String, String>) -> Answer {
        let programs = [Path::new(env!("CARGO_BIN_EXE_setpoint")), kubectl()].map(|program| program.parent());
        let mut path: Vec<PathBuf> = programs.into_iter().flatten().map(Path::to_owned).collect();
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut shell = Command::new("bash");
        shell.args(["-euc", command]).current_dir(self.directory.path()).env("HOME", self.directory.path());
        shell.env("PATH", std::env::join_paths(path).expect("a path")).env_remove("KUBECONFIG");
        shell.envs(variables).output().expect("a shell starts").into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_command_works() {
    let checkout = Checkout::start();
    let stop = CancellationToken::new();
    operate(&checkout.up, "greeter", first::greeter, &stop).await;
    let mut ran = 0;
    for page in pages().into_iter().filter(|page| !page.ends_with(SESSION)) {
        let mut variables = BTreeMap::new();
        for Shown { command, output } in shown(&fs::read_to_string(&page).expect("a page")) {
            if let Some((name, value)) = command.strip_prefix("export ").and_then(|rest| rest.split_once('='))
            {
                variables.insert(name.to_owned(), value.to_owned());
                continue;
            }
            if NOT_RUN.iter().any(|(start, _)| command.starts_with(start)) {
                continue;
            }
            eventually(&format!("{}: {command} works", page.display()), || {
                let answer = checkout.run(&command, &variables);
                eprint!("$ {command}\n{}{}", answer.out, answer.err);
                answer.ok && is_like(&output, &answer.out)
            });
            ran += 1;
        }
    }
    assert!(ran >= 10, "the pages have been read: {ran} commands");
    stop.cancel();
}

/// Returns a port that is free now.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it listens").port().to_string()
}

/// Returns the commands with ports that are free, because those on the page may be in use.
fn with_free_ports(commands: &str) -> String {
    let mut changed = commands.replace("--secure-port 644$n", "--secure-port $(cat port-$n)");
    for port in ["127.0.0.1:2379", "127.0.0.1:2380"] {
        changed = changed.replace(port, &format!("127.0.0.1:{}", free_port()));
    }
    let ports = (1..=3).map(|n| format!("echo {} > port-{n}\n", free_port())).collect::<String>();
    ports + &changed.replace("--port 6440", &format!("--port {}", free_port()))
}

#[test]
fn three_servers_are_run_as_documented() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let page = fs::read_to_string(root().join(SESSION)).expect("a page");
    let commands: Vec<Shown> = shown(&page);
    assert!(commands.len() > 20, "the page has been read");
    // Each command says that it begins, so that it is known which one failed and what each has printed.
    let script: String =
        commands.iter().enumerate().map(|(at, one)| format!("echo ==== {at}\n{}\n", one.command)).collect();
    let end = "trap 'for pid in $(cat *.pid); do kill -9 $pid 2> /dev/null || true; done' EXIT\n";
    let etcd = setpoint_etcd::test_server::programs();
    let programs = [Path::new(env!("CARGO_BIN_EXE_setpoint")), kubectl()].map(|program| program.parent());
    let mut path: Vec<PathBuf> = programs.into_iter().flatten().map(Path::to_owned).collect();
    path.push(etcd);
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut shell = Command::new("timeout");
    shell.args(["180", "bash", "-euc"]).arg(end.to_owned() + &with_free_ports(&script));
    shell.current_dir(directory.path()).env("HOME", directory.path()).env_remove("KUBECONFIG");
    let answer = Answer::from(
        shell.env("PATH", std::env::join_paths(path).expect("a path")).output().expect("a shell starts"),
    );
    let mut logs = String::new();
    for entry in fs::read_dir(directory.path()).expect("a directory").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            let log = fs::read_to_string(entry.path()).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(10).collect();
            logs += &format!("{}:\n{}\n", entry.path().display(), last.join("\n"));
        }
    }
    assert!(answer.ok, "{}\n{}\n{logs}", answer.out, answer.err);
    for (at, Shown { command, output }) in commands.iter().enumerate() {
        let printed = answer.out.split(&format!("==== {at}\n")).nth(1).unwrap_or_default();
        let printed = printed.split("==== ").next().unwrap_or_default();
        assert!(is_like(output, printed), "{command} printed {printed}");
    }
}

/// Returns whether the output matches the documented one. Tables may differ in their cells, but not in their header.
fn is_like(shown: &str, output: &str) -> bool {
    let header = |text: &str| -> Vec<String> {
        text.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    shown.is_empty() || header(shown) == header(output)
}

/// Returns the commands of this binary in backquotes and console blocks, with values for their placeholders.
fn mentioned(page: &str) -> Vec<Vec<String>> {
    let quoted = page.split('`').skip(1).step_by(2).map(str::to_owned);
    let alone = |command: String| command.split(" > ").next().unwrap_or_default().to_owned();
    let blocks = shown(page).into_iter().map(|shown| alone(shown.command).trim_end_matches(" &").to_owned());
    let is_placeholder = |word: &&str| word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let words = |command: String| -> Vec<String> {
        let words = command.split_whitespace().map(|word| if is_placeholder(&word) { "1" } else { word });
        words.map(str::to_owned).collect()
    };
    let own = |command: &String| command.starts_with("setpoint ") || command.starts_with("make ");
    quoted.chain(blocks).filter(own).map(words).collect()
}

#[test]
fn every_mentioned_command_exists() {
    // Of this project, and of those that `setpoint new` writes.
    let makefiles = ["Makefile", "crates/scaffold/templates/common/Makefile.jinja"];
    let makefile = makefiles.map(|path| fs::read_to_string(root().join(path)).expect("a Makefile")).concat();
    let mut wrong = Vec::new();
    let pages = pages().into_iter().chain(["CONTRIBUTING.md", "SECURITY.md"].map(|page| root().join(page)));
    for page in pages {
        for command in mentioned(&fs::read_to_string(&page).expect("a page")) {
            let exists = match command[0].as_str() {
                "make" => makefile.contains(&format!("\n{}:", command[1])),
                _ => parses(&command[1..]),
            };
            if !exists {
                wrong.push(format!("{}: {}", page.display(), command.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns whether the binary accepts these arguments. It parses them before it prints its help.
fn parses(arguments: &[String]) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(arguments).arg("--help").output().is_ok_and(|output| output.status.success())
}
