//! How containers end, and what their sandboxes show.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use setpoint_placement::Resources;

use super::fate::{Fate, Inputs};
use super::pod::{Pod, pod_of};
use super::sandbox::{Read, Sandbox, spans};
use super::sources::{Sources, Tokens};
use super::{Kept, SANDBOXES, SandboxState, Slot};
use crate::files::Quota;
use crate::log::{LogQuery, LogScript};

fn at(seconds: u64) -> Timestamp {
    "2025-01-01T00:00:00Z".parse::<Timestamp>().expect("a time") + Duration::from_secs(seconds)
}

fn sources() -> Sources {
    Sources::fixed(
        &[("conf", &[("k", "from-config"), ("run.sh", "echo $1; exit 6")])],
        &[("s", &[("k", "6")])],
    )
}

fn fate(pod: &Pod, container: &str, restarts: u32) -> Fate {
    let (sources, allocatable) = (sources(), Resources::default());
    let inputs = Inputs { pod, sources: &sources, allocatable: &allocatable };
    inputs.fate(pod.container(container).expect("a container"), restarts, at(0))
}

/// Returns how a run of a container ends: seconds and code, or whether that is unknown.
fn ends(mut container: Value, restarts: u32) -> String {
    container["name"] = "c".into();
    let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "conf"}}]);
    let metadata = json!({"name": "p", "namespace": "ns", "labels": {"index": "3"}});
    let pod = pod_of(json!({"metadata": metadata, "spec": {"containers": [container], "volumes": volumes}}));
    match fate(&pod, "c", restarts) {
        Fate::Ends(ending) => format!("{}s {}", ending.after.as_secs_f64(), ending.code),
        Fate::Forever => "forever".to_owned(),
        Fate::Unknown { after } => format!("unknown after {}s", after.as_secs_f64()),
    }
}

fn script_ends(script: &str) -> String {
    let index =
        json!({"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['index']"}}});
    let secret = json!({"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let env = json!([index, secret, {"name": "N", "value": "5"}]);
    ends(json!({"command": ["/bin/sh", "-c", script], "env": env}), 0)
}

#[test]
fn a_program_that_is_too_costly_to_simulate_is_not_known() {
    let doubled = format!("a=xx; {}exit 0", "a=$a$a; ".repeat(60));
    let printed = format!("a={}; {}exit 0", "x".repeat(1000), "echo $a; ".repeat(2000));
    for script in [&doubled, &printed] {
        assert_eq!(script_ends(script), "unknown after 0s", "{}", &script[..40]);
    }
    assert_eq!(script_ends(&format!("{}exit 0", "sleep 300d; ".repeat(2))), "forever");
    let many = |first: &str, word: &str, last: &str| {
        let mut words = vec![word; 20_000];
        words.insert(0, first);
        words.push(last);
        ends(json!({"command": words}), 0)
    };
    assert_eq!((many("test", "!", "x"), many("exec", "exec", "true")), ("0s 0".into(), "0s 0".into()));
}

#[test]
fn known_commands_exit_and_others_are_not_known() {
    let check = |words: &[&str], expected: &str| {
        assert_eq!(ends(json!({"command": words}), 0), expected, "{words:?}");
    };
    check(&["/bin/true"], "0s 0");
    check(&["false"], "0s 1");
    check(&["sleep", "1.5"], "1.5s 0");
    check(&["sleep", "infinity"], "forever");
    check(&["sleep"], "unknown after 0s");
    check(&["nginx", "-g", "daemon off;"], "unknown after 0s");
    check(&["sh", "/run.sh"], "unknown after 0s");
    check(&["bash", "-c", "exit 300"], "0s 44");
    check(&["sh", "-c", "sleep 3; mytool"], "unknown after 3s");
    check(&["echo", "$(N)"], "0s 0");
    check(&[], "unknown after 0s");
}

#[test]
fn arguments_alone_are_run_if_they_name_a_program_or_the_image_has_no_other() {
    let check =
        |container: Value, expected: &str| assert_eq!(ends(container.clone(), 0), expected, "{container}");
    check(json!({"args": ["/bin/sh", "-c", "exit 2"]}), "0s 2");
    check(json!({"args": ["true"]}), "unknown after 0s");
    check(json!({"image": "busybox", "args": ["sleep", "5"]}), "5s 0");
    check(json!({"image": "registry.example.com:5000/a/busybox:1.37@sha256:0"}), "0s 0");
    check(json!({"image": "busybox", "stdin": true}), "forever");
    check(json!({"image": "acme/tools", "stdin": true, "tty": true}), "forever");
    check(json!({"image": "busybox", "args": ["httpd", "-f"]}), "unknown after 0s");
    check(json!({"image": "busybox", "ports": [{"containerPort": 80}]}), "unknown after 0s");
    check(json!({"image": "busybox", "ports": [{"containerPort": 80}], "args": ["true"]}), "0s 0");
}

#[test]
fn a_script_exits_with_the_result_of_its_last_step() {
    let check = |script, expected: &str| assert_eq!(script_ends(script), expected, "{script}");
    check("date; echo Hello from the cluster", "0s 0");
    check("sleep 2 && exit 3; sleep 9", "2s 3");
    check("true || exit 1; false", "0s 1");
    check("exec sleep 1; exit 9", "1s 0");
    check("exit $N", "0s 5");
    check("exit $SECRET", "0s 6");
    check("echo $UNSET; exit 1 2>/dev/null", "0s 1");
    check("echo $KUBERNETES_SERVICE_HOST", "unknown after 0s");
    check("curl http://x", "unknown after 0s");
    check("\n  if [ $(expr ${INDEX} % 2) -ne 0 ]; then\n exit 1\nelse\n exit 0\nfi\n", "0s 1");
    check("if [ $INDEX = 1 ]; then exit 1; elif [[ $INDEX == 3 ]]; then exit 33; fi", "0s 33");
    check("if test ! -e /f; then touch /f; fi; [ -e /f ]", "0s 0");
    check("echo x >> /f; rm /f; test -e /f", "0s 1");
    check("if [ -f /etc/other/x ]; then exit 1; fi", "unknown after 0s");
    check("until [ -f /ready ]; do sleep 1; done", "unknown after 0s");
    check("[ $(hostname) = p ] && cat /etc/hostname", "0s 0");
}

#[test]
fn files_on_volumes_are_known_and_survive_a_restart() {
    let script = "if [[ -r /data/f ]]; then exit 0; else touch /data/f; exit 1; fi";
    let mut container = json!({"command": ["sh", "-c", script]});
    assert_eq!(ends(container.clone(), 1), "0s 1");
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/data"}]);
    assert_eq!((ends(container.clone(), 0), ends(container, 1)), ("0s 1".into(), "0s 0".into()));
    let mounted =
        json!({"command": ["sh", "/conf/run.sh"], "volumeMounts": [{"name": "conf", "mountPath": "/conf"}]});
    assert_eq!(ends(mounted, 0), "0s 6");
}

#[test]
fn containers_find_what_init_containers_leave() {
    let mount = json!([{"name": "v", "mountPath": "/scratch"}]);
    let init = json!({"name": "i", "command": ["sh", "-c", "echo 7 > /scratch/code"], "volumeMounts": mount});
    let main =
        json!({"name": "c", "command": ["sh", "-c", "exit $(cat /scratch/code)"], "volumeMounts": mount});
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    let pod = pod_of(json!({"spec": {"initContainers": [init], "containers": [main], "volumes": volumes}}));
    assert!(matches!(fate(&pod, "c", 0), Fate::Ends(ending) if ending.code == 7));
}

#[test]
fn the_termination_message_comes_from_its_file_or_the_end_of_the_log() {
    let check = |script: &str, policy: &str, expected: &str| {
        let container = json!({"name": "c", "command": ["sh", "-c", script],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": policy});
        let pod = pod_of(json!({"spec": {"containers": [container]}}));
        let Fate::Ends(ending) = fate(&pod, "c", 0) else { panic!("{script}") };
        assert_eq!(&*ending.message, expected, "{script} {policy}");
    };
    check("/bin/echo -n DONE > /dev/termination-log", "File", "DONE");
    check("echo -n DONE; false", "File", "");
    check("echo -n DONE; false", "FallbackToLogsOnError", "DONE");
    check("echo -n DONE >&2; false", "FallbackToLogsOnError", "DONE");
    check("echo DONE; true", "FallbackToLogsOnError", "");
    check("echo -n log; echo -n file > /dev/termination-log; false", "FallbackToLogsOnError", "file");
}

/// A pod with a running container.
fn running(mut container: Value, restarts: u32) -> Value {
    container["name"] = "c".into();
    let mut status = json!({"name": "c", "restartCount": restarts, "state": {"running": {"startedAt": at(100 * u64::from(restarts)).to_string()}}});
    if let Some(before) = restarts.checked_sub(1) {
        let (started, finished) = (at(100 * u64::from(before)), at(100 * u64::from(before) + 50));
        status["lastState"] =
            json!({"terminated": {"startedAt": started.to_string(), "finishedAt": finished.to_string()}});
    }
    let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "conf"}}]);
    json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [container], "volumes": volumes}, "status": {"containerStatuses": [status]}})
}

async fn updated(sandbox: &mut Sandbox, pod: &Pod, script: &str, seconds: u64) {
    let (sources, tokens, allocatable, services) =
        (sources(), Tokens::default(), Resources::default(), BTreeMap::new());
    let log_scripts = BTreeMap::from([("c".to_owned(), LogScript::parse(script))]);
    let read = Read {
        pod,
        sources: &sources,
        tokens: &tokens,
        allocatable: &allocatable,
        services: &services,
        log_scripts: &log_scripts,
    };
    sandbox.update(&read, at(seconds)).await;
}

fn log(sandbox: &Sandbox, is_previous: bool) -> String {
    let log = sandbox.log("c", is_previous).expect("a log");
    let mut selection = LogQuery::default().selection(at(0));
    String::from_utf8(selection.text(log.lines_from(0).0)).expect("text").replace('\n', ",")
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_does_not_lose_runs() {
    let long = "echo first; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo last";
    let pod = pod_of(running(json!({"command": ["sh", "-c", long]}), 0));
    let mut sandbox = Sandbox::new(&Quota::new(1 << 20));
    assert!(futures::poll!(Box::pin(updated(&mut sandbox, &pod, "", 0))).is_pending());
    assert!(pod.status.status.all_containers().all(|status| sandbox.has_runs_of(status)));
    updated(&mut sandbox, &pod, "", 0).await;
    assert_eq!(log(&sandbox, false), "first,last,", "it goes on where it was");
}

#[tokio::test(start_paused = true)]
async fn a_log_grows_as_time_passes() {
    let counter = "i=0; while true; do echo $i; i=$((i+1)); sleep 10; done";
    let pod = pod_of(running(json!({"command": ["sh", "-c", counter]}), 0));
    let mut sandbox = Sandbox::new(&Quota::new(1 << 20));
    updated(&mut sandbox, &pod, "5s scripted", 0).await;
    assert_eq!(log(&sandbox, false), "0,");
    assert_eq!(sandbox.next_line("c", at(0)), Some(at(5)));
    sandbox.advance(pod.status.status.all_containers(), at(5)).await;
    assert_eq!(sandbox.next_line("c", at(5)), Some(at(10)));
    sandbox.advance(pod.status.status.all_containers(), at(25)).await;
    assert_eq!(log(&sandbox, false), "0,scripted,1,2,");
    let mut late = Sandbox::new(&Quota::new(1 << 20));
    updated(&mut late, &pod, "", 86400).await;
    assert!(log(&late, false).ends_with(",8639,8640,"), "what was printed before someone looked is there");
}

#[tokio::test(start_paused = true)]
async fn the_log_of_the_previous_run_is_kept_and_ends_with_it() {
    let script = "[ -f /v/f ] && echo again || echo first; touch /v/f; sleep 40; echo 40; sleep 20; echo 60";
    let container =
        json!({"command": ["sh", "-c", script], "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let mut sandbox = Sandbox::new(&Quota::new(1 << 20));
    let first = pod_of(running(container.clone(), 0));
    updated(&mut sandbox, &first, "", 30).await;
    assert_eq!(log(&sandbox, false), "first,");
    let second = pod_of(running(container.clone(), 1));
    assert!(!second.status.status.all_containers().all(|status| sandbox.has_runs_of(status)));
    updated(&mut sandbox, &second, "", 170).await;
    assert_eq!(log(&sandbox, false), "again,40,60,");
    assert_eq!(log(&sandbox, true), "first,40,", "it was stopped after 50 seconds");
    let mut fresh = Sandbox::new(&Quota::new(1 << 20));
    updated(&mut fresh, &second, "", 170).await;
    assert_eq!((log(&fresh, false), log(&fresh, true)), ("again,40,60,".into(), "first,40,".into()));
    let mut later = Sandbox::new(&Quota::new(1 << 20));
    updated(&mut later, &pod_of(running(container, 7)), "", 700).await;
    assert_eq!((log(&later, false), log(&later, true)), ("again,".into(), "again,40,".into()));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_becomes_unknown_keeps_what_it_has_printed() {
    let pod = pod_of(running(json!({"command": ["sh", "-c", "echo -n starting; exec nginx"]}), 0));
    let mut sandbox = Sandbox::new(&Quota::new(1 << 20));
    updated(&mut sandbox, &pod, "", 10).await;
    assert_eq!(log(&sandbox, false), "", "the line has not ended");
    let pod = pod_of(running(json!({"command": ["sh", "-c", "while :; do :; done"]}), 0));
    let mut busy = Sandbox::new(&Quota::new(1 << 20));
    updated(&mut busy, &pod, "", 10).await;
    assert_eq!(log(&busy, false), "", "a busy loop is given up");
}

#[test]
fn runs_are_read_from_the_status() {
    let check = |state: Value, last: Value, restarts: u32, expected: (Option<u32>, Option<u32>)| {
        let status = json!({"name": "c", "restartCount": restarts, "state": state, "lastState": last});
        let status = serde_json::from_value(status).expect("a status");
        let (current, previous) = spans(&status);
        let number = |span: Option<super::sandbox::Span>| span.map(|span| span.number);
        assert_eq!((number(current), number(previous)), expected, "{status:?}");
    };
    let running = || json!({"running": {"startedAt": at(0).to_string()}});
    let ended = || json!({"terminated": {"startedAt": at(0).to_string(), "finishedAt": at(1).to_string()}});
    let waiting = || json!({"waiting": {"reason": "CrashLoopBackOff"}});
    check(waiting(), json!({}), 0, (None, None));
    check(running(), json!({}), 0, (Some(0), None));
    check(running(), ended(), 3, (Some(3), Some(2)));
    check(ended(), ended(), 3, (Some(3), Some(2)));
    check(waiting(), ended(), 3, (Some(3), Some(3)));
}

#[test]
fn a_sandbox_that_is_in_use_is_kept() {
    let mut kept = Kept::default();
    let quota = Quota::new(1 << 20);
    let add = |kept: &mut Kept, used: u64| {
        let sandbox = Sandbox::new(&quota);
        let is_changed = sandbox.is_changed.clone();
        let state = SandboxState { sandbox, tokens: Tokens::default() };
        let sandbox = Arc::new(tokio::sync::Mutex::new(state));
        kept.sandboxes.insert(used.to_string().into(), Slot { sandbox: sandbox.clone(), is_changed, used });
        sandbox
    };
    let session = add(&mut kept, 0);
    (1..SANDBOXES as u64).for_each(|used| drop(add(&mut kept, used)));
    kept.make_room().expect("one is not in use");
    assert_eq!((kept.sandboxes.contains_key("0"), kept.sandboxes.contains_key("1")), (true, false));
    drop(session);
    add(&mut kept, SANDBOXES as u64);
    kept.make_room().expect("none is in use");
    assert!(!kept.sandboxes.contains_key("0"));
}
