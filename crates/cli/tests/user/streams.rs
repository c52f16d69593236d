//! kubectl's streams to pods of simulated nodes: logs, exec, attach, cp, port-forward, debug and top.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::binary::{Answer, Running, Up, eventually, kubectl};
use crate::clients::program;

/// Runs its arguments in a terminal.
const TERMINAL: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

/// Starts a cluster with pods to talk to.
fn with_pods() -> Up {
    let up = Up::start(&["--nodes", "1"]);
    up.kubectl(&["apply", "-f", &program("streams.yaml")]);
    up.kubectl(&["wait", "--for=condition=Ready", "pod/web", "pod/shell", "--timeout=60s"]);
    up
}

#[track_caller]
fn assert_said(answer: &Answer, code: i32, out: &str, err: &str) {
    assert_eq!((answer.code, answer.out.as_str()), (Some(code), out), "{}", answer.err);
    assert!(answer.err.contains(err), "{}", answer.err);
}

#[test]
fn logs_are_followed_cut_and_kept() {
    let up = with_pods();
    eventually("it has begun", || up.try_kubectl(&["logs", "timed"], "").out == "one\n");
    thread::scope(|threads| {
        threads.spawn(|| assert_eq!(up.kubectl(&["logs", "--follow", "timed"]), "one\ntwo\nthree\n"));
        threads.spawn(|| {
            eventually("it was restarted", || up.try_kubectl(&["logs", "--previous", "crashing"], "").ok);
            assert_eq!(up.kubectl(&["logs", "--previous", "crashing"]), "out of order\n");
        });
        eventually("it ticks", || up.kubectl(&["logs", "web"]).contains("tick\ntick\ntick\n"));
        assert!(up.kubectl(&["logs", "web"]).starts_with("starting up\ncache is cold\n"));
        assert_eq!(up.kubectl(&["logs", "web", "--tail=2"]), "tick\ntick\n");
        let recent = up.kubectl(&["logs", "web", "--since=2s", "--timestamps"]);
        assert!(
            recent.lines().all(|line| line.ends_with("Z tick")) && recent.lines().count() <= 3,
            "{recent}"
        );
        assert_eq!(up.kubectl(&["logs", "web", "--limit-bytes=8"]), "starting");
        let never = up.try_kubectl(&["logs", "--previous", "web"], "");
        let expected = "previous terminated container \"web\" in pod \"web\" not found";
        assert!(!never.ok && never.err.contains(expected), "{}", never.err);
    });
}

/// Every command ends with its own exit code, whatever it prints first.
#[test]
fn commands_run_in_containers_and_report_how_they_ended() {
    let up = with_pods();
    let exec = |arguments: &[&str], input: &str| up.try_kubectl(&[&["exec"], arguments].concat(), input);
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..8 {
                    let answer = exec(&["web", "--", "sh", "-c", "echo $COLOR; echo dark >&2; exit 7"], "");
                    assert_said(&answer, 7, "blue\n", "dark\ncommand terminated with exit code 7\n");
                }
            });
        }
    });
    assert_said(&exec(&["web", "--", "hostname"], ""), 0, "web\n", "");
    let unknown = exec(&["web", "--", "psql", "--version"], "");
    assert_said(&unknown, 127, "", "exec: \"psql\": executable file not found in $PATH");
    assert_said(&unknown, 127, "", "it has no image, and runs only these commands: ");
    let input = "0123456789\n".repeat(20_000);
    assert_said(&exec(&["-i", "web", "--", "sh", "-c", "wc -c; exit 4"], &input), 4, "220000\n", "");
    assert_eq!(exec(&["-i", "web", "--", "cat"], &input).out, input);
    let missing = exec(&["web", "-c", "db", "--", "true"], "");
    assert_said(&missing, 1, "", "container db is not valid for pod web");
    let session = up.try_kubectl_in_terminal(&["exec", "-it", "web", "--", "sh"], "tty\nexit 5\n");
    assert!(session.out.contains("/dev/pts/0\r\n"), "{}", session.out);
    assert_eq!(session.code, Some(5), "{}", session.out);
}

#[test]
fn files_are_copied_both_ways_and_containers_are_attached_to_and_debugged() {
    let up = with_pods();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a readable path").to_owned();
    fs::create_dir_all(path("sent/inner")).expect("a directory");
    fs::write(path("sent/a"), vec![7; 100_000]).expect("a file");
    fs::write(path("sent/inner/b"), "b").expect("a file");
    up.kubectl(&["cp", &path("sent"), "web:/tmp/sent"]);
    assert_eq!(up.kubectl(&["exec", "web", "--", "wc", "-c", "/tmp/sent/a"]), "100000 /tmp/sent/a\n");
    up.kubectl(&["cp", "web:/tmp/sent", &path("received")]);
    for file in ["a", "inner/b"] {
        let read = |top: &str| fs::read(path(top) + "/" + file).expect("a file");
        assert_eq!(read("sent"), read("received"), "{file}");
    }
    let answer = up.try_kubectl(&["attach", "-i", "shell"], "echo hello from $HOSTNAME\nexit 3\n");
    assert_said(&answer, 0, "hello from shell\n", "");
    eventually("the shell ended with its input", || {
        up.kubectl(&["get", "pod", "shell", "-o", "jsonpath={.status.phase}"]) == "Failed"
    });
    let debugger = ["debug", "web", "--image=busybox", "--container=debugger", "--profile=general", "--"];
    up.kubectl(&[&debugger[..], &["sh", "-c", "echo looking around; sleep 60"]].concat());
    eventually("the debugger runs", || {
        up.try_kubectl(&["logs", "web", "-c", "debugger"], "").out == "looking around\n"
    });
}

/// Serves one greeting per connection, on a free port.
fn greeter() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let mut request = [0; 1024];
            let _ = connection.read(&mut request);
            let _ = connection
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
        }
    });
    address
}

fn greeting(port: &str) -> Option<String> {
    let mut connection = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n").ok()?;
    let mut text = String::new();
    connection.read_to_string(&mut text).ok()?;
    Some(text.rsplit("\r\n").next()?.to_owned())
}

/// Starts a port-forward. Returns its local port, and the file that it reports to.
fn forwarded(up: &Up, directory: &Path) -> (Running, String) {
    let report = directory.join("forwarding");
    let file = fs::File::create(&report).expect("a file");
    let mut command = Command::new(kubectl());
    command.arg("--kubeconfig").arg(up.kubeconfig()).args(["port-forward", "web", ":8080"]);
    command.stdout(file.try_clone().expect("a handle")).stderr(file).stdin(Stdio::null());
    let running = Running(command.spawn().expect("kubectl starts"));
    let mut port = String::new();
    eventually("it listens", || {
        let said = fs::read_to_string(&report).expect("a report");
        let rest = said.split_once("127.0.0.1:").map(|(_, rest)| rest);
        port =
            rest.and_then(|rest| rest.split_once(' ')).map(|(port, _)| port.to_owned()).unwrap_or_default();
        !port.is_empty()
    });
    (running, port)
}

#[test]
fn ports_lead_to_a_local_process_and_usage_is_shown() {
    let up = with_pods();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = up.try_kubectl(&["get", "--raw", "/api/v1/namespaces/default/pods/web:8080/proxy/"], "");
    assert!(refused.err.contains("annotate it with node.setpoint.dev/backend"), "{}", refused.err);
    up.kubectl(&["annotate", "pod", "web", &format!("node.setpoint.dev/backend={}", greeter())]);
    let proxied = ["get", "--raw", "/api/v1/namespaces/default/pods/web:8080/proxy/"];
    eventually("the proxy leads there", || up.try_kubectl(&proxied, "").out == "hello\n");
    let (mut running, port) = forwarded(&up, directory.path());
    for _ in 0..5 {
        assert_eq!(greeting(&port).as_deref(), Some("hello\n"));
    }
    let report = fs::read_to_string(directory.path().join("forwarding")).expect("a report");
    assert!(running.is_running() && !report.contains("rror"), "{report}");
    let pods = up.kubectl(&["top", "pods", "--containers"]);
    let columns: Vec<Vec<&str>> = pods.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(columns.contains(&vec!["web", "web", "50m", "32Mi"]), "{pods}");
    let nodes = up.kubectl(&["top", "nodes"]);
    assert!(nodes.contains("CPU(cores)") && nodes.contains("node-0"), "{nodes}");
}

impl Up {
    /// Runs kubectl in a terminal.
    fn try_kubectl_in_terminal(&self, arguments: &[&str], input: &str) -> Answer {
        let mut command = Command::new("python3");
        command
            .args(["-c", TERMINAL])
            .arg(kubectl())
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(input.as_bytes()).expect("it reads");
        // The terminal stays open until the command has ended.
        let answer = child.wait_with_output().expect("it ends").into();
        drop(stdin);
        answer
    }
}
