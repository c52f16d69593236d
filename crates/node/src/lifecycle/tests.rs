//! Pods at different points of their lives.

use serde_json::{Value, json};
use setpoint::{Cached, Object};

use super::*;
use crate::status::{PodAddresses, status_patch};

const NOW: &str = "2025-01-01T00:01:00Z";

/// A pod that is reconciled from time to time. Its written status is the input of the next round.
struct Watched {
    pod: Value,
    now: Timestamp,
    obstacle: Option<Obstacle>,
    resize: Option<Resize>,
}

impl Watched {
    fn new(annotations: Value, spec: Value) -> Self {
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations});
        let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}});
        Self { pod, now: NOW.parse().expect("a time"), obstacle: None, resize: None }
    }

    fn step(&self) -> Step {
        let object = self.object();
        let cached = Cached::new(object.clone()).expect("a pod");
        let circumstances = Circumstances {
            obstacle: self.obstacle.as_ref(),
            resize: self.resize.as_ref(),
            fates: Some(&crate::runtime::fates_without_sources(&cached)),
            missing_images: &[],
        };
        next(object.meta(), object.view().expect("a pod"), circumstances, self.now)
    }

    fn object(&self) -> Object {
        Object::from_json(self.pod.to_string().into()).expect("an object")
    }

    /// Applies writes until there are none left, and returns the remaining step.
    fn settle(&mut self) -> Step {
        for _ in 0..10 {
            match self.step() {
                Step::Write(next) => self.write(&next),
                other => return other,
            }
        }
        panic!("it does not settle: {:#}", self.pod["status"]);
    }

    fn write(&mut self, next: &PodNow) {
        let pod = Cached::new(self.object()).expect("a pod");
        let place = PodAddresses { host_ip: "h", pod_ips: &["i".to_owned()] };
        let mut patch = status_patch(&pod, next, &place, self.now)["status"].take();
        let conditions = self.pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let written = patch["conditions"].as_array().cloned().unwrap_or_default();
        let kept = conditions.into_iter().filter(|old| !written.iter().any(|new| new["type"] == old["type"]));
        let updated = written.iter().filter(|new| new["$patch"].is_null()).cloned();
        patch["conditions"] = kept.chain(updated).collect();
        for (field, value) in patch.as_object().into_iter().flatten() {
            self.pod["status"][field] = value.clone();
        }
    }

    fn after(&mut self, seconds: u64) -> &mut Self {
        self.now += Duration::from_secs(seconds);
        self.settle();
        self
    }

    /// Formats the pod like `kubectl get pods`: readiness, status and restarts.
    fn shown(&self) -> String {
        let status = &self.pod["status"];
        let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
        let main = list("containerStatuses");
        let ready = main.iter().filter(|one| one["ready"] == true).count();
        let restarts: i64 = main.iter().filter_map(|one| one["restartCount"].as_i64()).sum();
        let word = |one: &Value| {
            let state = &one["state"];
            let reasons = [&state["waiting"]["reason"], &state["terminated"]["reason"]];
            reasons.iter().find_map(|reason| reason.as_str()).unwrap_or("Running").to_owned()
        };
        let init = list("initContainerStatuses");
        let done = init.iter().filter(|one| one["ready"] == true).count();
        let is_sidecar = |at: usize| self.pod["spec"]["initContainers"][at]["restartPolicy"] == "Always";
        let is_open = |(at, one): &(usize, &Value)| {
            one["ready"] != true && !(is_sidecar(*at) && one["started"] == true)
        };
        let open = init.iter().enumerate().find(is_open).map(|(_, one)| one);
        let words = match open {
            Some(one) if word(one) == "Running" || word(one) == "PodInitializing" => {
                format!("Init:{done}/{}", init.len())
            }
            Some(one) if main.iter().all(|one| word(one) == "PodInitializing") => {
                format!("Init:{}", word(one))
            }
            _ => main.iter().map(word).collect::<Vec<_>>().join(","),
        };
        format!("{ready}/{} {words} {restarts} {}", main.len(), status["phase"].as_str().unwrap_or_default())
    }

    fn condition(&self, name: &str) -> String {
        let conditions = self.pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|one| one["type"] == name).cloned().unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        [text("status"), text("reason"), text("message")].join(" ").trim().to_owned()
    }
}

fn one() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

#[test]
fn a_new_pod_runs_and_is_ready_with_one_write_and_then_rests() {
    let mut pod = Watched::new(json!({}), one());
    let Step::Write(next) = pod.step() else { panic!("it runs at once") };
    pod.write(&next);
    assert_eq!(pod.shown(), "1/1 Running 0 Running");
    assert_eq!((pod.condition("Ready"), pod.condition("Initialized")), ("True".into(), "True".into()));
    assert_eq!(pod.step(), Step::Rest);
}

#[test]
fn init_containers_run_one_after_the_other_and_sidecars_stay() {
    let spec = json!({"containers": [{"name": "c"}], "initContainers": [
        {"name": "first"}, {"name": "proxy", "restartPolicy": "Always"}, {"name": "second"}]});
    let mut pod = Watched::new(json!({"node.setpoint.dev/run-for.second": "5s"}), spec);
    pod.settle();
    assert_eq!(pod.shown(), "0/1 Init:0/3 0 Pending");
    let open = "False ContainersNotInitialized containers with incomplete status: [first proxy second]";
    assert_eq!(pod.condition("Initialized"), open);
    assert_eq!(pod.after(1).shown(), "0/1 Init:2/3 0 Pending");
    assert_eq!(
        pod.condition("ContainersReady"),
        "False ContainersNotReady containers with unready status: [c]"
    );
    assert_eq!(pod.after(5).shown(), "1/1 Running 0 Running");
    assert_eq!(pod.condition("Initialized"), "True");
    assert_eq!(pod.pod["status"]["initContainerStatuses"][1]["ready"], true);
    assert_eq!(pod.settle(), Step::Rest);
}

#[test]
fn an_init_container_that_fails_is_tried_again_or_ends_the_pod() {
    let spec = |policy: &str| json!({"containers": [{"name": "c"}], "initContainers": [{"name": "setup"}], "restartPolicy": policy});
    let fails =
        || json!({"node.setpoint.dev/exit-code.setup": "1", "node.setpoint.dev/exit-times.setup": "2"});
    let mut never = Watched::new(fails(), spec("Never"));
    never.settle();
    assert_eq!(never.after(1).shown(), "0/1 Init:Error 0 Failed");
    let mut always = Watched::new(fails(), spec("Always"));
    always.settle();
    assert_eq!(always.after(1).shown(), "0/1 Init:Error 0 Pending");
    assert_eq!(always.after(1).shown(), "0/1 Init:0/1 0 Pending");
    assert_eq!(always.after(1).shown(), "0/1 Init:CrashLoopBackOff 0 Pending");
}

#[test]
fn containers_exit_and_are_restarted_each_on_its_own() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}], "restartPolicy": "OnFailure"});
    let mut pod = Watched::new(
        json!({"node.setpoint.dev/run-for.a": "2s", "node.setpoint.dev/run-for.b": "2s",
               "node.setpoint.dev/exit-code.b": "1", "node.setpoint.dev/exit-times.b": "1"}),
        spec,
    );
    pod.settle();
    assert_eq!(pod.shown(), "2/2 Running,Running 0 Running");
    assert_eq!(pod.after(2).shown(), "0/2 Completed,Error 0 Running");
    assert_eq!(pod.after(1).shown(), "1/2 Completed,Running 1 Running");
    assert_eq!(pod.settle(), Step::Rest, "it exits once only");
}

#[test]
fn known_commands_exit_by_themselves_unless_annotations_override_them() {
    let spec = json!({"restartPolicy": "Never",
        "initContainers": [{"name": "setup", "command": ["sleep", "3"]}],
        "containers": [{"name": "c", "command": ["sh", "-c", "echo -n gone > /log; sleep 2; exit 3"],
                        "terminationMessagePath": "/log"}]});
    let mut pod = Watched::new(json!({}), spec.clone());
    pod.settle();
    assert_eq!(pod.after(2).shown(), "0/1 Init:0/1 0 Pending");
    assert_eq!(pod.after(1).shown(), "1/1 Running 0 Running");
    assert_eq!(pod.after(2).shown(), "0/1 Error 0 Failed");
    let ended = &pod.pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["message"]), (&json!(3), &json!("gone")));
    let mut annotated = Watched::new(json!({"node.setpoint.dev/run-for": "9s"}), spec);
    annotated.settle();
    assert_eq!(annotated.after(3).after(3).shown(), "1/1 Running 0 Running");
    assert_eq!(annotated.after(6).shown(), "0/1 Completed 0 Succeeded");
}

#[test]
fn a_pod_is_over_when_no_container_is_restarted_and_its_sidecars_end_with_it() {
    let spec = json!({"containers": [{"name": "c"}], "restartPolicy": "Never",
                      "initContainers": [{"name": "proxy", "restartPolicy": "Always"}]});
    for (code, expected) in [("0", "0/1 Completed 0 Succeeded"), ("3", "0/1 Error 0 Failed")] {
        let exits = json!({"node.setpoint.dev/run-for": "5s", "node.setpoint.dev/exit-code": code});
        let mut pod = Watched::new(exits, spec.clone());
        pod.settle();
        assert_eq!(pod.after(5).shown(), expected);
        assert!(pod.pod["status"]["initContainerStatuses"][0]["state"]["terminated"].is_object());
        assert_eq!(pod.settle(), Step::Rest);
    }
}

#[test]
fn readiness_comes_when_probes_first_look_or_never() {
    let probed = json!({"containers": [{"name": "c", "startupProbe": {"initialDelaySeconds": 5},
                                        "readinessProbe": {"initialDelaySeconds": 20}}]});
    let mut pod = Watched::new(json!({}), probed);
    assert_eq!(pod.settle(), Step::Wait(Duration::from_secs(5)));
    assert_eq!(pod.after(5).settle(), Step::Wait(Duration::from_secs(15)));
    assert_eq!(pod.shown(), "0/1 Running 0 Running");
    assert_eq!(pod.after(15).shown(), "1/1 Running 0 Running");
    let looks = json!({"containers": [{"name": "c", "readinessProbe": {"exec": {"command": ["test", "-f", "/ready"]}}}]});
    let mut pod = Watched::new(json!({}), looks);
    pod.settle();
    assert_eq!(pod.shown(), "1/1 Running 0 Running", "the file may be there for all that is known");
    let mut slow = Watched::new(json!({"node.setpoint.dev/ready-after": "90s"}), one());
    assert_eq!(slow.settle(), Step::Wait(Duration::from_secs(90)));
    let fails =
        json!({"containers": [{"name": "c", "readinessProbe": {"exec": {"command": ["/bin/false"]}}}]});
    for (annotations, spec) in [(json!({"node.setpoint.dev/never-ready": "true"}), one()), (json!({}), fails)]
    {
        let mut never = Watched::new(annotations, spec);
        assert_eq!(never.settle(), Step::Rest);
        assert_eq!(never.shown(), "0/1 Running 0 Running");
    }
}

#[test]
fn readiness_gates_keep_the_pod_unready_until_they_are_true() {
    let mut spec = one();
    spec["readinessGates"] = json!([{"conditionType": "lb"}]);
    let mut pod = Watched::new(json!({}), spec);
    assert_eq!(pod.settle(), Step::Rest);
    let closed =
        "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"lb\" does not exist.";
    assert_eq!((pod.condition("Ready"), pod.condition("ContainersReady")), (closed.into(), "True".into()));
    pod.pod["status"]["conditions"]
        .as_array_mut()
        .expect("some")
        .push(json!({"type": "lb", "status": "True"}));
    assert_eq!(pod.settle(), Step::Rest);
    assert_eq!(pod.condition("Ready"), "True");
}

#[test]
fn a_pod_waits_for_its_volumes_and_for_what_configures_it() {
    let mut pod = Watched::new(json!({}), one());
    pod.obstacle = Some(Obstacle::Volumes);
    assert_eq!(pod.settle(), Step::Rest);
    assert_eq!(pod.shown(), "0/1 ContainerCreating 0 Pending");
    assert_eq!(pod.condition("PodReadyToStartContainers"), "False");
    pod.obstacle = Some(Obstacle::Config(vec![("c".into(), "secret \"s\" not found".into())]));
    pod.settle();
    assert_eq!(pod.shown(), "0/1 CreateContainerConfigError 0 Pending");
    assert_eq!(pod.condition("PodReadyToStartContainers"), "True");
    pod.obstacle = None;
    pod.settle();
    assert_eq!(pod.shown(), "1/1 Running 0 Running");
}

#[test]
fn a_pod_that_starts_slowly_is_accepted_first() {
    let mut pod = Watched::new(json!({"node.setpoint.dev/start-after": "30s"}), one());
    assert_eq!(pod.settle(), Step::Wait(Duration::from_secs(30)));
    assert_eq!(pod.shown(), "0/1 ContainerCreating 0 Pending");
    assert_eq!(pod.after(30).shown(), "1/1 Running 0 Running");
}

#[test]
fn an_active_deadline_ends_the_pod_in_any_state() {
    let mut spec = one();
    spec["activeDeadlineSeconds"] = 30.into();
    let mut pod = Watched::new(json!({}), spec);
    assert_eq!(pod.settle(), Step::Wait(Duration::from_secs(30)));
    assert_eq!(pod.after(30).shown(), "0/1 Error 0 Failed");
    assert_eq!(pod.pod["status"]["reason"], "DeadlineExceeded");
}

#[test]
fn a_deleted_pod_stops_within_its_grace_period_and_is_then_removed() {
    let mut pod = Watched::new(json!({"node.setpoint.dev/terminate-after": "1h"}), one());
    pod.settle();
    pod.pod["metadata"]["deletionTimestamp"] = "2025-01-01T00:01:30Z".into();
    pod.pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    assert_eq!(pod.settle(), Step::Wait(Duration::from_secs(30)));
    pod.now += Duration::from_secs(30);
    assert_eq!(pod.settle(), Step::Remove);
    assert_eq!(pod.shown(), "0/1 Error 0 Failed");
}

#[test]
fn a_deleted_pod_runs_its_pre_stop_hook_first() {
    for hook in [json!({"sleep": {"seconds": 20}}), json!({"exec": {"command": ["sh", "-c", "sleep 20"]}})] {
        let spec = json!({"containers": [{"name": "c", "lifecycle": {"preStop": hook}}]});
        let mut pod = Watched::new(json!({}), spec);
        pod.settle();
        pod.pod["metadata"]["deletionTimestamp"] = "2025-01-01T00:01:30Z".into();
        pod.pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        assert_eq!(pod.settle(), Step::Wait(Duration::from_secs(20)));
    }
}

#[test]
fn an_ephemeral_container_runs_and_a_resize_is_reported() {
    let mut pod = Watched::new(json!({}), one());
    pod.settle();
    assert_eq!(pod.pod["status"]["containerStatuses"][0]["resources"], json!({}));
    pod.pod["metadata"]["generation"] = 2.into();
    pod.pod["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "d"}]);
    pod.pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    assert_eq!(pod.settle(), Step::Rest);
    let status = &pod.pod["status"];
    assert_eq!(status["observedGeneration"], 2);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    assert!(conditions.iter().all(|condition| condition["observedGeneration"] == 2), "{conditions:?}");
    assert!(status["ephemeralContainerStatuses"][0]["state"]["running"].is_object());
    assert_eq!(status["containerStatuses"][0]["resources"], json!({"requests": {"cpu": "2"}}));
    assert_eq!(status["containerStatuses"][0]["allocatedResources"], json!({"cpu": "2"}));
}

#[test]
fn a_container_keeps_its_resources_until_a_resize_is_possible() {
    let mut spec = one();
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    let mut pod = Watched::new(json!({}), spec);
    pod.settle();
    let has = |pod: &Watched| pod.pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"].clone();
    assert_eq!(has(&pod), "1");
    pod.pod["metadata"]["generation"] = 2.into();
    pod.pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    let refused = Refused { reason: "Deferred", message: "no room".into() };
    pod.resize = Some(Resize::Refused(refused));
    assert_eq!(pod.settle(), Step::Rest);
    assert_eq!((has(&pod), pod.condition("PodResizePending")), ("1".into(), "True Deferred no room".into()));
    pod.resize = Some(Resize::Made { restarts: Vec::new() });
    assert_eq!(pod.settle(), Step::Rest);
    assert_eq!((has(&pod), pod.condition("PodResizePending")), ("3".into(), String::new()));
    assert_eq!(pod.shown(), "1/1 Running 0 Running");
}

/// Returns the events of the next step.
fn recorded_events(pod: &Watched) -> Vec<(String, String)> {
    let Step::Write(next) = pod.step() else { return Vec::new() };
    let cached = Cached::new(pod.object()).expect("a pod");
    let events = crate::pod_events::pod_events(&cached, &next);
    events.into_iter().map(|event| (event.reason.to_owned(), event.message)).collect()
}

#[test]
fn container_changes_are_reported_with_the_messages_of_the_kubelet() {
    let event = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
    let starts = || {
        [
            event("Pulled", "Container image \"i\" already present on machine"),
            event("Created", "Created container: c"),
            event("Started", "Started container c"),
        ]
    };
    let probe =
        json!({"httpGet": {"path": "/"}, "periodSeconds": 10, "failureThreshold": 2, "successThreshold": 1});
    let spec =
        json!({"containers": [{"name": "c", "image": "i", "readinessProbe": probe, "livenessProbe": probe}]});
    let mut pod = Watched::new(json!({}), spec);
    assert_eq!(recorded_events(&pod), starts());
    pod.settle();
    pod.now += Duration::from_secs(60);
    let annotate = |pod: &mut Watched, probes: &str| {
        pod.pod["metadata"]["annotations"] = json!({"node.setpoint.dev/failing-probes": probes});
    };
    annotate(&mut pod, "readiness");
    assert_eq!(
        recorded_events(&pod),
        [event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")]
    );
    pod.settle();
    assert_eq!(pod.shown(), "0/1 Running 0 Running");
    annotate(&mut pod, "");
    pod.settle();
    assert_eq!(pod.shown(), "1/1 Running 0 Running");
    annotate(&mut pod, "liveness");
    let expected = [
        event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 503"),
        event("Killing", "Container c failed liveness probe, will be restarted"),
    ];
    assert_eq!(recorded_events(&pod), expected);
    pod.settle();
    pod.now += Duration::from_secs(1);
    assert_eq!(recorded_events(&pod), starts());
    pod.settle();
    assert_eq!(pod.shown(), "1/1 Running 1 Running");
    pod.pod["metadata"]["deletionTimestamp"] = "2025-01-01T00:01:00Z".into();
    pod.pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    assert_eq!(recorded_events(&pod), [event("Killing", "Stopping container c")]);
}
