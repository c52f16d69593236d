//! What simulated nodes serve like kubelets: logs, commands in containers, images that cannot be pulled.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, LogParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint::{Key, Kind};
use setpoint_sim::{Running, TestCluster};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

const CONTROLLERS: &[&str] = &["nodelifecycle", "serviceaccount", "job", "deployment", "replicaset"];

fn cluster() -> TestCluster {
    TestCluster::new().controllers(CONTROLLERS).scheduler().nodes(1)
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

fn pod(name: &str, annotations: Value, spec: Value) -> Value {
    let metadata = json!({"name": name, "namespace": "default", "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

fn script(text: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", text]}]})
}

fn shown(pod: &Pod) -> String {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
    let state = status.and_then(|status| status.state.as_ref());
    let waiting = state.and_then(|state| state.waiting.as_ref()?.reason.clone());
    let ended = state.and_then(|state| state.terminated.as_ref()?.reason.clone());
    waiting.or(ended).unwrap_or_else(|| if state.is_some() { "Running".into() } else { String::new() })
}

/// Creates a pod once its service account exists, and waits until its container shows this.
async fn create(cluster: &Running, pod: Value, until: &str) {
    cluster.until(&key("default"), |_: &k8s_openapi::api::core::v1::ServiceAccount| true).await;
    let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
    cluster.create(pod).await;
    cluster.until(&key(&name), |pod: &Pod| shown(pod) == until).await;
}

fn pods(cluster: &Running) -> Api<Pod> {
    Api::namespaced(cluster.kube(), "default")
}

#[test]
fn a_log_has_what_the_program_has_printed_so_far() {
    cluster().run(async |cluster| {
        let counter =
            "echo starting >&2; i=0; while true; do echo \"$i $(date +%T)\"; i=$((i+1)); sleep 10; done";
        create(cluster, pod("p", json!({}), script(counter)), "Running").await;
        let status = pods(cluster).get("p").await.expect("a pod").status.expect("a status");
        let started = status.start_time.expect("a start").0;
        let at =
            |seconds: i64| (started + Duration::from_secs(seconds.unsigned_abs())).strftime("%T").to_string();
        cluster.pass(Duration::from_secs(15)).await;
        let expected = format!("starting\n0 {}\n1 {}\n", at(0), at(10));
        assert_eq!(cluster.logs("default/p", "c").await, expected);
        let logs = async |params: LogParams| pods(cluster).logs("p", &params).await.expect("a log");
        assert_eq!(logs(LogParams::default()).await, expected);
        let last = LogParams { tail_lines: Some(1), timestamps: true, ..LogParams::default() };
        let stamp = (started + Duration::from_secs(10)).strftime("%FT%T.000000000Z");
        assert_eq!(logs(last).await, format!("{stamp} 1 {}\n", at(10)));
        let recent = LogParams { since_seconds: Some(12), ..LogParams::default() };
        assert_eq!(logs(recent).await, format!("1 {}\n", at(10)));
        let cut = LogParams { limit_bytes: Some(5), ..LogParams::default() };
        assert_eq!(logs(cut).await, "start");
    });
}

#[test]
fn a_followed_log_ends_with_its_container() {
    cluster().run(async |cluster| {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox",
            "command": ["sh", "-c", "for i in 1 2 3; do echo $i; sleep 60; done"]}]});
        create(cluster, pod("p", json!({}), spec), "Running").await;
        let before = cluster.clock().now();
        let follow = LogParams { follow: true, ..LogParams::default() };
        assert_eq!(pods(cluster).logs("p", &follow).await.expect("a log"), "1\n2\n3\n");
        let passed = cluster.clock().now().duration_since(before).as_secs();
        assert!((175..=185).contains(&passed), "{passed}");
    });
}

#[test]
fn the_log_of_the_run_before_a_restart_is_kept() {
    cluster().run(async |cluster| {
        let mounts = json!([{"name": "v", "mountPath": "/v"}]);
        let count = "n=$(cat /v/n || echo 0); echo run $n; echo $((n+1)) > /v/n; sleep 5; exit 1";
        let container =
            json!({"name": "c", "image": "busybox", "command": ["sh", "-c", count], "volumeMounts": mounts});
        let spec = json!({"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]});
        create(cluster, pod("p", json!({}), spec), "Running").await;
        let none = pods(cluster).logs("p", &LogParams { previous: true, ..LogParams::default() }).await;
        let why = none.expect_err("there is no run before").to_string();
        assert!(why.contains("previous terminated container \"c\" in pod \"p\" not found"), "{why}");
        cluster
            .until(&key("p"), |pod: &Pod| {
                let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
                statuses.is_some_and(|all| all[0].restart_count == 2) && shown(pod) == "Running"
            })
            .await;
        let texts = (cluster.logs("default/p", "c").await, cluster.previous_logs("default/p", "c").await);
        assert_eq!((texts.0.lines().last(), texts.1.lines().last()), (Some("run 2"), Some("run 1")));
        cluster.until(&key("p"), |pod: &Pod| shown(pod) == "CrashLoopBackOff").await;
        assert_eq!(cluster.logs("default/p", "c").await.lines().last(), Some("run 2"));
    });
}

#[test]
fn logs_can_be_scripted_by_annotations_and_config_maps() {
    cluster().run(async |cluster| {
        let data = json!({"log": "5s from a ConfigMap", "other": "every 20s tick"});
        let metadata = json!({"name": "lines", "namespace": "default"});
        cluster
            .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
            .await;
        let annotations = json!({"node.setpoint.dev/log": "starting up\n2s listening on :8080",
            "node.setpoint.dev/log-from": "lines", "node.setpoint.dev/log-from.d": "lines/other"});
        let spec = json!({"containers": [{"name": "c", "image": "web"}, {"name": "d", "image": "web"}]});
        create(cluster, pod("p", annotations, spec), "Running").await;
        cluster.pass(Duration::from_secs(45)).await;
        assert_eq!(
            cluster.logs("default/p", "c").await,
            "starting up\nlistening on :8080\nfrom a ConfigMap\n"
        );
        let log = cluster.logs("default/p", "d").await;
        assert_eq!(log, "starting up\nlistening on :8080\ntick\ntick\n");
    });
}

#[test]
fn logs_that_do_not_exist_yet_are_refused_with_the_reason() {
    cluster().run(async |cluster| {
        let annotations = json!({"node.setpoint.dev/start-after": "60s"});
        create(cluster, pod("slow", annotations, script("true")), "ContainerCreating").await;
        let why = pods(cluster).logs("slow", &LogParams::default()).await.expect_err("no log").to_string();
        assert!(
            why.contains("container \"c\" in pod \"slow\" is waiting to start: ContainerCreating"),
            "{why}"
        );
        let other = LogParams { container: Some("x".into()), ..LogParams::default() };
        let why = pods(cluster).logs("slow", &other).await.expect_err("no container").to_string();
        assert!(why.contains("container x is not valid for pod slow"), "{why}");
    });
}

#[test]
fn commands_see_the_files_and_variables_of_their_container() {
    cluster().run(async |cluster| {
        let named = |kind: &str, data: Value| {
            let metadata = json!({"name": "conf", "namespace": "default"});
            json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data})
        };
        cluster.create(named("ConfigMap", json!({"app.conf": "a=1\n", "level": "info"}))).await;
        cluster.create(named("Secret", json!({"password": "aHVudGVyMg=="}))).await;
        let volumes = json!([
            {"name": "conf", "configMap": {"name": "conf"}},
            {"name": "secret", "secret": {"secretName": "conf", "defaultMode": 0o400}},
            {"name": "pod", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "shared", "emptyDir": {}},
        ]);
        let mounts = json!([
            {"name": "conf", "mountPath": "/etc/conf"},
            {"name": "conf", "mountPath": "/etc/app.conf", "subPath": "app.conf"},
            {"name": "secret", "mountPath": "/etc/secret"},
            {"name": "pod", "mountPath": "/etc/pod"},
            {"name": "shared", "mountPath": "/shared"},
        ]);
        let env = json!([
            {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "level"}}},
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "conf", "key": "password"}}},
            {"name": "BOTH", "value": "$(LEVEL)/$(PASSWORD)"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ]);
        let main = json!({"name": "c", "image": "web", "volumeMounts": mounts, "env": env});
        let beside = json!({"name": "d", "image": "web", "volumeMounts": [{"name": "shared", "mountPath": "/mnt"}]});
        let mut body = pod("p", json!({}), json!({"containers": [main, beside], "volumes": volumes}));
        body["metadata"]["labels"] = json!({"app": "web"});
        create(cluster, body, "Running").await;
        let run = async |container: &str, text: &str| {
            let executed = cluster.exec("default/p", container, &["sh", "-c", text]).await;
            format!("{}{}", executed.stdout, executed.stderr)
        };
        assert_eq!(run("c", "cat /etc/conf/app.conf /etc/app.conf; ls /etc/conf").await, "a=1\na=1\napp.conf\nlevel\n");
        assert_eq!(run("c", "cat /etc/secret/password; ls -l /etc/secret | tail -1 | head -c 10").await, "hunter2-r--------");
        assert_eq!(run("c", "cat /etc/pod/labels").await, "app=\"web\"");
        assert_eq!(run("c", "echo $BOTH $NODE; hostname").await, "info/hunter2 node-0\np\n");
        assert!(run("c", "env").await.contains("KUBERNETES_SERVICE_HOST=10.0.0.1\n"));
        let account = "/var/run/secrets/kubernetes.io/serviceaccount";
        assert_eq!(run("c", &format!("cat {account}/namespace")).await, "default");
        assert_eq!(run("c", "echo hello > /shared/f; echo x > /etc/conf/f").await, "sh: can't create /etc/conf/f: Read-only file system\n");
        assert_eq!(run("d", "cat /mnt/f").await, "hello\n");
        let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(cluster.kube(), "default");
        let change = Patch::Merge(json!({"data": {"level": "debug"}}));
        maps.patch("conf", &PatchParams::default(), &change).await.expect("a map");
        assert_eq!(run("c", "cat /etc/conf/level; echo -$LEVEL").await, "debug-info\n", "files follow, variables stay");
    });
}

#[test]
fn commands_have_exit_codes_and_take_time() {
    cluster().run(async |cluster| {
        create(cluster, pod("p", json!({}), json!({"containers": [{"name": "c", "image": "web"}]})), "Running").await;
        let before = cluster.clock().now();
        let slow = cluster.exec("default/p", "c", &["sh", "-c", "sleep 30; exit 4"]).await;
        assert_eq!((slow.code, cluster.clock().now()), (4, before + Duration::from_secs(30)));
        let piped = cluster.exec_with_input("default/p", "c", &["grep", "b"], "a\nb\n").await;
        assert_eq!((piped.code, piped.stdout.as_str()), (0, "b\n"));
        let unknown = cluster.exec("default/p", "c", &["curl", "http://x"]).await;
        assert_eq!(unknown.code, 127);
        let message = "OCI runtime exec failed: exec failed: unable to start container process: exec: \"curl\": executable file not found in $PATH: unknown\nthis is a simulated container: it has no image, and runs only these commands: ";
        assert!(unknown.stderr.starts_with(message), "{}", unknown.stderr);
        let error = cluster.kubelets().exec(&key("p"), "x", &["true"], "").await.expect_err("no container");
        assert_eq!(error.to_string(), "container not found (\"x\")");
    });
}

#[test]
fn a_command_ends_with_its_container() {
    cluster().run(async |cluster| {
        let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox",
            "command": ["sh", "-c", "sleep 30; exit 1"]}]});
        create(cluster, pod("p", json!({}), spec), "Running").await;
        let before = cluster.clock().now();
        let killed = cluster.exec("default/p", "c", &["sleep", "100000"]).await;
        assert_eq!(killed.code, 137);
        assert!(
            cluster.clock().now() < before + Duration::from_secs(60),
            "it does not outlive the container"
        );
    });
}

/// Sends input to a command that does not read it, over a WebSocket, until no more fits.
async fn send_unread_input(cluster: &Running, query: &str) -> impl AsyncWrite + use<> {
    let mut connection = cluster.kubelets().connect("node-0", 10250).expect("a node");
    let request = format!(
        "GET /exec/default/p/c?{query} HTTP/1.1\r\nHost: node-0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 101");
    // A binary message of 60,000 bytes on channel 0, masked with zeros.
    let mut message = vec![0x82, 0xfe];
    message.extend(60_000_u16.to_be_bytes());
    message.extend([0; 4 + 60_000]);
    let filling = async { while connection.write_all(&message).await.is_ok() {} };
    _ = tokio::time::timeout(Duration::from_secs(1), filling).await;
    connection
}

#[test]
fn a_command_that_does_not_read_its_input_ends_with_its_client() {
    cluster().run(async |cluster| {
        create(
            cluster,
            pod("p", json!({}), json!({"containers": [{"name": "c", "image": "web"}]})),
            "Running",
        )
        .await;
        let command = "input=1&output=1&command=sh&command=-c&command=sleep%2060%3Btouch%20%2Ftmp%2Fx";
        let client = send_unread_input(cluster, command).await;
        drop(client);
        cluster.pass(Duration::from_secs(120)).await;
        assert_eq!(cluster.exec("default/p", "c", &["test", "-e", "/tmp/x"]).await.code, 1);
        let _client = send_unread_input(cluster, command).await;
        cluster.pass(Duration::from_secs(120)).await;
        assert_eq!(cluster.exec("default/p", "c", &["test", "-e", "/tmp/x"]).await.code, 0, "one that stays");
    });
}

#[test]
fn a_program_that_is_not_known_ends_in_a_job_and_stays_in_a_deployment() {
    cluster().run(async |cluster| {
        cluster.until(&key("default"), |_: &k8s_openapi::api::core::v1::ServiceAccount| true).await;
        let metadata = |name: &str| json!({"name": name, "namespace": "default"});
        let containers = json!([{"name": "c", "image": "example.com/migrate:1", "args": ["--all"]}]);
        for (name, annotations) in [("hook", json!({})), ("long", json!({"node.setpoint.dev/run-for": "forever"}))] {
            let spec = json!({"restartPolicy": "OnFailure", "containers": containers});
            let template = json!({"metadata": {"annotations": annotations}, "spec": spec});
            let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(name), "spec": {"template": template}});
            cluster.create(job).await;
        }
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
        cluster.create(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web"), "spec": spec})).await;
        let before = cluster.clock().now();
        cluster.until(&key("hook"), |job: &Job| job.status.as_ref().is_some_and(|status| status.succeeded == Some(1))).await;
        assert!(cluster.clock().now() < before + Duration::from_secs(10));
        cluster.pass(Duration::from_secs(600)).await;
        let running = pods(cluster).list(&Default::default()).await.expect("a list");
        let running = running.items.iter().filter(|pod| shown(pod) == "Running");
        let owners: Vec<String> = running.filter_map(|pod| pod.metadata.name.clone()).collect();
        assert_eq!(owners.len(), 2, "{owners:?}");
    });
}

/// Returns the events about a pod: reason and message, in order.
async fn events(cluster: &Running, name: &str) -> Vec<(String, String)> {
    let events = cluster.list(&Kind::of::<Event>(), Some("default")).await;
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let about =
        events.iter().filter(|event| event["involvedObject"]["name"] == name && event["type"] == "Warning");
    about.map(|event| (text(event, "reason"), text(event, "message"))).collect()
}

#[test]
fn images_that_cannot_be_pulled_are_tried_again_with_back_off() {
    cluster().missing_image("registry.example.com/gone/*").run(async |cluster| {
        let image = "registry.example.com/gone/web:1";
        let spec = |image: &str| json!({"containers": [{"name": "c", "image": image}]});
        create(cluster, pod("p", json!({}), spec(image)), "ErrImagePull").await;
        let recorded = events(cluster, "p").await;
        let failed = |message: &str| ("Failed".to_owned(), message.to_owned());
        let pull = "Failed to pull image \"registry.example.com/gone/web:1\": rpc error: code = NotFound desc = failed to pull and unpack image \"registry.example.com/gone/web:1\": failed to resolve reference \"registry.example.com/gone/web:1\": registry.example.com/gone/web:1: not found";
        assert!(recorded.contains(&failed(pull)) && recorded.contains(&failed("Error: ErrImagePull")), "{recorded:?}");
        cluster.until(&key("p"), |pod: &Pod| shown(pod) == "ImagePullBackOff").await;
        let log = pods(cluster).logs("p", &LogParams::default()).await.expect_err("no log").to_string();
        assert!(log.contains("is waiting to start: trying and failing to pull image"), "{log}");
        cluster.pass(Duration::from_secs(3600)).await;
        assert!(["ImagePullBackOff", "ErrImagePull"].contains(&&*shown(&pods(cluster).get("p").await.expect("a pod"))));
        let annotated = json!({"node.setpoint.dev/missing-images": "nginx:*, other"});
        create(cluster, pod("q", annotated.clone(), spec("nginx:1.27")), "ErrImagePull").await;
        let remove = Patch::Merge(json!({"metadata": {"annotations": {"node.setpoint.dev/missing-images": null}}}));
        pods(cluster).patch("q", &PatchParams::default(), &remove).await.expect("a pod");
        cluster.until(&key("q"), |pod: &Pod| shown(pod) == "Running").await;
        let mut never = spec("nginx:1.27");
        never["containers"][0]["imagePullPolicy"] = "Never".into();
        create(cluster, pod("never", annotated, never), "ErrImageNeverPull").await;
        let recorded = events(cluster, "never").await;
        let absent = "Container image \"nginx:1.27\" is not present with pull policy of Never";
        assert!(recorded.contains(&("ErrImageNeverPull".to_owned(), absent.to_owned())), "{recorded:?}");
        create(cluster, pod("invalid", json!({}), spec("Not/An Image")), "InvalidImageName").await;
        assert!(events(cluster, "invalid").await.iter().any(|(reason, _)| reason == "InspectFailed"));
    });
}

#[test]
fn a_failed_node_answers_nothing_and_the_log_of_a_deleted_pod_is_gone() {
    cluster().run(async |cluster| {
        create(cluster, pod("p", json!({}), script("echo hi; sleep 3600")), "Running").await;
        let fail = async |failed: Value| {
            let nodes: Api<Node> = Api::all(cluster.kube());
            let patch =
                Patch::Merge(json!({"metadata": {"annotations": {"node.setpoint.dev/failed": failed}}}));
            nodes.patch("node-0", &PatchParams::default(), &patch).await.expect("a node");
            cluster.pass(Duration::from_secs(1)).await;
        };
        let follow = LogParams { follow: true, ..LogParams::default() };
        let followed = async { pods(cluster).logs("p", &follow).await };
        let failing = async {
            cluster.pass(Duration::from_secs(5)).await;
            fail(json!("true")).await;
        };
        let before = cluster.clock().now();
        let (_, ()) = futures::join!(followed, failing);
        assert!(cluster.clock().now() < before + Duration::from_secs(60), "the log is cut off");
        let why = pods(cluster).logs("p", &LogParams::default()).await.expect_err("no node").to_string();
        assert!(why.contains("connect: connection refused"), "{why}");
        fail(Value::Null).await;
        assert_eq!(pods(cluster).logs("p", &LogParams::default()).await.expect("a log"), "hi\n");
        pods(cluster).delete("p", &DeleteParams::default()).await.expect("a pod");
        cluster.gone::<Pod>(&key("p")).await;
        let why = pods(cluster).logs("p", &LogParams::default()).await.expect_err("no pod").to_string();
        assert!(why.contains("pods \"p\" not found"), "{why}");
    });
}

#[test]
fn a_restarted_manager_shows_the_same_logs() {
    cluster().run(async |cluster| {
        create(cluster, pod("p", json!({}), script("echo one; sleep 60; echo two; sleep 3600")), "Running")
            .await;
        cluster.pass(Duration::from_secs(90)).await;
        let before = cluster.logs("default/p", "c").await;
        cluster.restart().await;
        cluster.pass(Duration::from_secs(5)).await;
        assert_eq!((cluster.logs("default/p", "c").await, before.as_str()), (before.clone(), "one\ntwo\n"));
    });
}

#[test]
fn an_ephemeral_container_runs_its_command_or_waits_for_input() {
    cluster().run(async |cluster| {
        create(
            cluster,
            pod("p", json!({}), json!({"containers": [{"name": "c", "image": "web"}]})),
            "Running",
        )
        .await;
        let debug = |name: &str, more: Value| {
            let mut container = json!({"name": name, "image": "busybox"});
            more.as_object()
                .into_iter()
                .flatten()
                .for_each(|(field, value)| container[field] = value.clone());
            container
        };
        let containers = json!([
            debug("once", json!({"command": ["sh", "-c", "echo looked; exit 3"]})),
            debug("shell", json!({"stdin": true, "tty": true}))
        ]);
        let mut current = pods(cluster).get_ephemeral_containers("p").await.expect("a pod");
        let spec = current.spec.as_mut().expect("a spec");
        spec.ephemeral_containers = Some(serde_json::from_value(containers).expect("containers"));
        pods(cluster)
            .replace_ephemeral_containers("p", &PostParams::default(), &current)
            .await
            .expect("they are added");
        cluster
            .until(&key("p"), |pod: &Pod| {
                let all = pod.status.as_ref().and_then(|status| status.ephemeral_container_statuses.clone());
                let state =
                    |at: usize| all.as_ref().and_then(|all| all.get(at)?.state.clone()).unwrap_or_default();
                state(0).terminated.is_some_and(|ended| ended.exit_code == 3) && state(1).running.is_some()
            })
            .await;
        assert_eq!(cluster.logs("default/p", "once").await, "looked\n");
        assert_eq!(cluster.exec("default/p", "shell", &["echo", "hi"]).await.stdout, "hi\n");
    });
}
