//! Scripts and sessions, run in a container with a volume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::Clock;
use tokio::sync::mpsc;

use super::*;
use crate::files::{FileSystem, Mount, Quota, Tree};
use crate::shell::{command, parse};

const NOW: &str = "2025-01-01T00:00:00Z";

pub(super) fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

/// A container with a file in `/etc`, a read-only volume and a writable one.
fn files() -> FileSystem {
    let quota = Quota::new(64 << 10);
    let tree = |files: &[(&str, &str)]| {
        let mut tree = Tree::new(quota.clone());
        for (path, content) in files {
            tree.make_directories(crate::files::path::split(path).0, now()).expect("room");
            tree.write(path, content.as_bytes().to_vec(), 0o644, now()).expect("room");
        }
        Arc::new(Mutex::new(tree))
    };
    let mount = |at: &str, files: &[(&str, &str)], is_read_only| Mount {
        at: at.into(),
        tree: tree(files),
        within: String::new(),
        is_read_only,
        is_complete: true,
    };
    let root = Mount::root(tree(&[("etc/passwd", "root:x:0:0\n"), ("tmp/x", ""), ("bin/sh", "")]), false);
    let config = mount("/config", &[("a.conf", "one\ntwo\nthree\n"), ("b.conf", "four\n")], true);
    FileSystem::new(root, vec![config, mount("/data", &[], false)], now())
}

pub(super) fn shell(pace: Pace, manner: UnknownCommands) -> Shell {
    let identity = Identity { host_name: "pod".into(), pod_ip: "10.0.0.1".into(), user: 0, group: 0 };
    let machine = Machine::new(files(), pace, manner, Arc::new(identity));
    let environment =
        BTreeMap::from([("N".to_owned(), "5".to_owned()), ("HOME".to_owned(), "/data".to_owned())]);
    Shell::new(Invocation {
        machine,
        environment,
        unknown: Arc::new(|name| name == "SECRET"),
        directory: "/".into(),
    })
}

/// Runs a script as a user's command, and returns what it prints and its exit code.
fn run(script: &str) -> (String, String, i32) {
    let reckoning = Reckoning::endless(now(), 100_000);
    let mut shell = shell(Pace::Reckoned(reckoning), UnknownCommands::Interactive);
    let ((stdout, out), (stderr, err)) = (Output::buffer(), Output::buffer());
    let io = Io { stdin: Input::text("line 1\nline 2\n"), stdout, stderr, terminal: None };
    let list = parse(script).unwrap_or_else(|why| panic!("{script}: {why}"));
    let done = shell.run(&list, &io).now_or_never().expect("nothing waits");
    let text = |buffer: &Mutex<Vec<u8>>| String::from_utf8_lossy(&buffer.lock()).into_owned();
    (text(&out), text(&err), done.unwrap_or_else(|stop| panic!("{script}: {stop:?}")))
}

fn check(script: &str, expected: &str) {
    let (stdout, stderr, code) = run(script);
    let code = if code == 0 { String::new() } else { format!("[{code}]") };
    assert_eq!(format!("{stdout}{stderr}{code}"), expected, "{script}");
}

#[test]
fn words_are_expanded_as_the_shell_expands_them() {
    check("echo $N \"$N $UNSET\" '$N'", "5 5  $N\n");
    check("a='x  y'; echo $a \"$a\"", "x y x  y\n");
    check("echo $(echo a; echo b) `echo c`", "a b c\n");
    check("echo $((N * 2 + 1)) ${#HOME}", "11 5\n");
    check("echo ${UNSET:-default} ${N:-no} ${N:+yes} ${X:=set} $X", "default 5 yes set set\n");
    check("f=a/b.tar.gz; echo ${f##*/} ${f%%.*} ${f%.*} ${f#*/}", "b.tar.gz a/b a/b.tar b.tar.gz\n");
    check("echo /config/*.conf /none/* \"/config/*\"", "/config/a.conf /config/b.conf /none/* /config/*\n");
    check("cd /config; echo *", "a.conf b.conf\n");
    check("echo ~ ~/x", "/data /data/x\n");
    check("set -- a 'b c'; for i in \"$@\"; do echo [$i]; done; echo $# $2", "[a]\n[b c]\n2 b c\n");
    check("false; echo $?", "1\n");
    check("set -u; echo $NONE; echo on", "sh: NONE: parameter not set\n[2]");
    check("echo ${NONE:?is needed}", "sh: NONE: is needed\n[2]");
}

#[test]
fn compound_commands_run() {
    check("for i in $(seq 3); do [ $i = 2 ] && continue; echo $i; done", "1\n3\n");
    check("i=0; while [ $i -lt 3 ]; do i=$((i+1)); [ $i = 2 ] && break; done; echo $i", "2\n");
    check("until [ -f /data/f ]; do touch /data/f; done; ls /data", "f\n");
    check("case abc in x) echo x;; a*|b) echo ab;; *) echo other;; esac", "ab\n");
    check("f() { echo \"$1!\"; return 3; }; f hi; echo $?", "hi!\n3\n");
    check("(cd /tmp; N=1; pwd); pwd; echo $N", "/tmp\n/\n5\n");
    check("! true; echo $?", "1\n");
    check("false | true && echo ok; set -o pipefail; false | true || echo failed", "ok\nfailed\n");
    check("set -e; false || true; if false; then :; fi; echo on; false; echo off", "on\n[1]");
    check("if grep -q two /config/a.conf; then echo found; else echo not; fi", "found\n");
    check("while read a b; do echo \"$b-$a\"; done", "1-line\n2-line\n");
    check("f() { f; }; f", "[2]");
}

#[test]
fn redirections_lead_to_files() {
    check("echo a > /data/f; echo b >> /data/f; cat < /data/f", "a\nb\n");
    check("echo err >&2; echo out 2>/dev/null", "out\nerr\n");
    check("{ echo a; echo b >&2; } > /data/f 2>&1; cat /data/f", "a\nb\n");
    check("cat <<EOF\n$N and \\$N\nEOF", "5 and $N\n");
    check("echo x > /config/new; echo $?", "1\nsh: can't create /config/new: Read-only file system\n");
    check("cat < /none || echo no", "no\nsh: can't open /none: No such file or directory\n");
    check("echo a | tee /data/f; cat /data/f", "a\na\n");
    check("echo hidden > /dev/null; echo shown > /dev/stdout", "shown\n");
}

#[test]
fn commands_behave_like_those_of_busybox() {
    check(
        "cat /config/a.conf /none",
        "one\ntwo\nthree\ncat: can't open '/none': No such file or directory\n[1]",
    );
    check(
        "head -n 1 /config/a.conf; tail -1 /config/a.conf; tail -n +2 /config/a.conf",
        "one\nthree\ntwo\nthree\n",
    );
    check("head -c 2 /config/a.conf; echo; tail -c 3 /config/b.conf", "on\nur\n");
    check(
        "cat /config/a.conf | head -n 2; seq 3 | head -c 3; seq 9 | { head -n 1; head -n 1; }",
        "one\ntwo\n1\n21\n2\n",
    );
    check("wc -l /config/a.conf; wc -c < /config/b.conf; cat /config/* | wc -w", "3 /config/a.conf\n5\n4\n");
    check(
        "grep -n t /config/a.conf; grep -c o /config/a.conf; grep -v o /config/a.conf",
        "2:two\n3:three\n2\nthree\n",
    );
    check("grep 'o[nN]*e\\|four' /config/a.conf /config/b.conf", "/config/a.conf:one\n/config/b.conf:four\n");
    check("echo foobar | grep -oE 'o+'; echo a.b | grep -F . -q && echo literal", "oo\nliteral\n");
    check(
        "ls /config; ls -d /config; ls /none",
        "a.conf\nb.conf\n/config\nls: /none: No such file or directory\n[1]",
    );
    check(
        "ls -l /config/b.conf",
        "-rw-r--r--    1 root     root             5 Jan  1 00:00 /config/b.conf\n",
    );
    check("mkdir -p /data/a/b; touch /data/a/f; ls /data/a; rm -r /data/a; ls /data", "b\nf\n");
    check(
        "mkdir /data/a; rm /data/a; rmdir /data/a; rm -f /none",
        "rm: can't remove '/data/a': Is a directory\n",
    );
    check(
        "cp /config/b.conf /data/c; mv /data/c /data/d; cat /data/d; cp -r /config /data; ls /data",
        "four\nconfig\nd\n",
    );
    check(
        "chmod 600 /config/a.conf; touch /data/f; chmod +x /data/f; [ -x /data/f ] && echo x",
        "x\nchmod: /config/a.conf: Read-only file system\n",
    );
    check("env | grep N=; printenv N; A=1 env | grep A=; env B=2 printenv B", "N=5\n5\nA=1\n2\n");
    check(
        "id; id -u; whoami; hostname; hostname -i; uname",
        "uid=0(root) gid=0(root) groups=0(root)\n0\nroot\npod\n10.0.0.1\nLinux\n",
    );
    check("sleep 90; date; date +%s", "Wed Jan  1 00:01:30 UTC 2025\n1735689690\n");
    check(
        "basename /a/b.txt .txt; dirname /a/b.txt; expr 2 + 3; printf '%s-%d\\n' a 1 b 2",
        "b\n/a\n5\na-1\nb-2\n",
    );
    check("test 1 -lt 2 -a x = x && [ ! -e /none ] && [[ -d /config ]] && echo ok", "ok\n");
    check(
        "sh -c 'echo $0 $1' name arg; echo 'echo piped' | sh; command -v cat; type cd",
        "name arg\npiped\n/bin/cat\ncd is cd\n",
    );
    check("echo 'echo $1' > /data/s; sh /data/s x; . /data/s; eval 'echo e'", "x\n\ne\n");
    check("exit 3; echo never", "[3]");
    check("exec echo replaced; echo never", "replaced\n");
    check("cat", "line 1\nline 2\n");
    check(
        "tar cf /data/t.tar -C /config a.conf && mkdir /data/x && tar xf /data/t.tar -C /data/x && cat /data/x/a.conf",
        "one\ntwo\nthree\n",
    );
}

#[test]
fn an_unknown_command_is_reported_with_what_is_known() {
    let (_, stderr, code) = run("curl http://x");
    assert_eq!(code, 127);
    assert!(
        stderr.starts_with("sh: curl: not found (this is a simulated container: it has no image, "),
        "{stderr}"
    );
    let (_, stderr, code) = run("ls --color=auto");
    assert_eq!(
        (stderr.as_str(), code),
        ("ls: unrecognized option (a simulated container supports fewer options)\n", 1)
    );
}

#[test]
fn files_take_no_more_than_their_quota() {
    let (_, stderr, code) = run("i=0; a=xxxxxxxxxxxxxxxx; while [ $i -lt 9 ]; do a=$a$a; i=$((i+1)); done; \
        while echo $a >> /data/f; do :; done; ls /data");
    assert_eq!((stderr.as_str(), code), ("sh: write error: No space left on device\n", 0));
}

#[test]
fn a_certain_run_stops_at_what_it_does_not_know() {
    let ends = |script: &str| {
        let reckoning = Reckoning::endless(now(), 10_000);
        let mut shell = shell(Pace::Reckoned(reckoning.clone()), UnknownCommands::Certain);
        shell.machine.only_ends = true;
        let list = parse(script).expect("a script");
        let done = shell.run(&list, &Io::null()).now_or_never().expect("nothing waits");
        match done {
            Ok(code) if shell.machine.first_doubt().is_none() => {
                format!("{}s {code}", reckoning.elapsed().as_secs_f64())
            }
            Ok(_) => "doubts".to_owned(),
            Err(stop) => format!("{stop:?}"),
        }
    };
    let check = |script: &str, expected: &str| assert_eq!(ends(script), expected, "{script}");
    check("sleep 5; curl x", "Unknown");
    check("echo $SECRET", "Unknown");
    check("cat /etc/nginx.conf", "Unknown");
    check("cat /config/a.conf && sleep 2", "2s 0");
    check("cat /config/none", "0s 1");
    check("ls /", "Unknown");
    check("[ -f /ready ]", "doubts");
    check("touch /ready; [ -f /ready ]", "0s 0");
    check("[ -f /data/ready ]", "0s 1");
    check("while true; do sleep 1; done", "Forever");
    check("i=0; while :; do i=$((i+1)); echo $i; sleep 1; done", "Forever");
    check("while true; do [ -f /data/x ] && exit 4; touch /data/x; sleep 1; done", "1s 4");
    check("set -e; while true; do false; done", "0s 1");
    check("tail -f /dev/null", "Forever");
    check("sleep infinity", "Forever");
    check("for i in $(seq 1 100); do sleep 1; done", "100s 0");
    check("i=0; while [ $i -ge 0 ]; do i=$((i+1)); done", "Unknown");
    check("sh -c 'for ('", "Unknown");
    check("a=xx; while true; do a=$a$a; [ 1 = 2 ] && break; done", "Unknown");
}

/// A client of a session.
struct Client {
    stdin: mpsc::Sender<Bytes>,
    stdout: mpsc::Receiver<Bytes>,
    stderr: mpsc::Receiver<Bytes>,
    session: tokio::task::JoinHandle<Done>,
}

impl Client {
    fn start(words: &[&str], is_terminal: bool) -> Self {
        let (stdin, read) = mpsc::channel(8);
        let ((out, stdout), (err, stderr)) = (mpsc::channel(8), mpsc::channel(8));
        let streams = ClientStreams { stdin: Some(read), stdout: Some(out), stderr: Some(err), is_terminal };
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let shell = shell(Pace::Real(Clock::simulated(now())), UnknownCommands::Interactive);
        let session = tokio::spawn(async move { run_session(shell, &command(&words), streams, None).await });
        Self { stdin, stdout, stderr, session }
    }

    async fn types(&self, text: &'static str) {
        self.stdin.send(Bytes::from_static(text.as_bytes())).await.expect("it reads");
    }

    /// Reads stdout until it ends with a text.
    async fn sees(&mut self, end: &str) -> String {
        let mut seen = String::new();
        while !seen.ends_with(end) {
            let piece =
                self.stdout.recv().await.unwrap_or_else(|| panic!("{seen:?} does not end with {end:?}"));
            seen.push_str(&String::from_utf8_lossy(&piece));
        }
        seen
    }

    async fn code(self) -> i32 {
        drop((self.stdin, self.stdout, self.stderr));
        self.session.await.expect("no panic").expect("it ends")
    }
}

#[tokio::test(start_paused = true)]
async fn a_shell_at_a_terminal_prompts_echoes_and_keeps_its_state() {
    let mut client = Client::start(&["sh"], true);
    assert_eq!(client.sees("# ").await, "/ # ");
    client.types("cd /confiq\x7fg\r").await;
    assert_eq!(client.sees("/config # ").await, "cd /confiq\x08 \x08g\r\n/config # ");
    client.types("for i in 1 2\r").await;
    assert_eq!(client.sees("> ").await, "for i in 1 2\r\n> ");
    client.types("do echo $i\x1b[A; done\r").await;
    assert_eq!(client.sees("# ").await, "do echo $i; done\r\n1\r\n2\r\n/config # ");
    client.types("sh\r").await;
    client.sees("# ").await;
    client.types("exit 4\r").await;
    client.sees("# ").await;
    client.types("cat\rhello\r").await;
    client.sees("hello\r\nhello\r\n").await;
    client.types("\x04false\r\x04").await;
    client.sees("# ").await;
    assert_eq!(client.session.await.expect("no panic"), Ok(1));
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_the_command_but_not_the_shell() {
    let mut client = Client::start(&["sh"], true);
    client.sees("# ").await;
    client.types("sleep 1000\r").await;
    client.sees("\r\n").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.types("\x03").await;
    client.sees("# ").await;
    client.types("echo $?\r").await;
    assert!(client.sees("# ").await.contains("130\r\n"));
    let alone = Client::start(&["sleep", "1000"], true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    alone.types("\x03").await;
    assert_eq!(alone.code().await, 130);
}

#[tokio::test(start_paused = true)]
async fn a_command_without_a_terminal_streams_its_input_and_output() {
    let mut client = Client::start(&["cat"], false);
    client.types("a").await;
    client.sees("a").await;
    client.types("b\n").await;
    client.sees("b\n").await;
    assert_eq!(client.code().await, 0);
    let mut slow = Client::start(&["sh", "-c", "echo 1; sleep 60; echo 2 >&2; exit 7"], false);
    slow.sees("1\n").await;
    let before = Clock::simulated(now());
    assert_eq!(slow.stderr.recv().await.as_deref(), Some(&b"2\n"[..]));
    assert_eq!(before.now(), now() + Duration::from_secs(60));
    assert_eq!(slow.code().await, 7);
    let script = Client::start(&["sh"], false);
    script.types("echo hi\nexit 5\n").await;
    assert_eq!(script.session.await.expect("no panic"), Ok(5));
}

#[tokio::test(start_paused = true)]
async fn a_command_ends_when_nothing_reads_its_output() {
    let client = Client::start(&["sh", "-c", "while true; do echo x; done"], false);
    let Client { stdout, stderr, session, stdin } = client;
    drop((stdout, stderr, stdin));
    assert_eq!(session.await.expect("no panic"), Ok(141));
}
