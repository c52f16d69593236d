//! Behaviour of the built-in controllers that needs a cluster, but no faults. Kubernetes makes the same claims about
//! its own.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use setpoint::Key;
use setpoint_sim::{Running, TestCluster};

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

fn pods(cluster: &Running) -> Api<Pod> {
    Api::namespaced(cluster.kube(), "default")
}

async fn all_pods(cluster: &Running) -> Vec<Pod> {
    pods(cluster).list(&ListParams::default()).await.expect("pods").items
}

fn names(pods: &[Pod]) -> Vec<String> {
    let mut names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    names.sort();
    names
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn set(kind: &str, name: &str, replicas: i32, more: Value) -> Value {
    let mut spec =
        json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name)});
    merge(&mut spec, more);
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn merge(into: &mut Value, more: Value) {
    for (field, value) in more.as_object().cloned().unwrap_or_default() {
        into[field] = value;
    }
}

fn pod(name: &str, labels: Value, spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    merge(&mut whole, spec);
    let metadata = json!({"name": name, "namespace": "default", "labels": labels});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole})
}

/// Writes a pod's status, as its node would.
async fn set_status(cluster: &Running, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    pods(cluster).patch_status(name, &PatchParams::default(), &patch).await.expect("a pod");
}

async fn make_ready(cluster: &Running) {
    for name in names(&all_pods(cluster).await) {
        let conditions =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}]);
        set_status(cluster, &name, json!({"phase": "Running", "conditions": conditions})).await;
    }
}

async fn account(cluster: &Running) {
    let metadata = json!({"name": "default", "namespace": "default"});
    cluster.create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).await;
}

async fn quota(cluster: &Running, pods: u32) {
    let metadata = json!({"name": "few", "namespace": "default"});
    let spec = json!({"hard": {"pods": pods.to_string()}});
    cluster
        .create(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}))
        .await;
    cluster.settled(Duration::from_secs(2)).await;
}

#[test]
fn terminating_pods_are_counted_with_the_feature_gate() {
    let check = |on: bool, expected: Option<i32>, after: Option<i32>| {
        let feature = "DeploymentReplicaSetTerminatingReplicas";
        let cluster = TestCluster::new().controllers(&["deployment", "replicaset"]).feature(feature, on);
        cluster.run(async |cluster| {
            account(cluster).await;
            let mut spec = template("web");
            merge(&mut spec["spec"], json!({"nodeName": "n", "terminationGracePeriodSeconds": 300}));
            cluster.create(set("Deployment", "web", 3, json!({"template": spec}))).await;
            let status_of = |deployment: &Deployment| deployment.status.clone().unwrap_or_default();
            cluster.until(&key("web"), |one: &Deployment| status_of(one).replicas == Some(3)).await;
            make_ready(cluster).await;
            let first = names(&all_pods(cluster).await)[0].clone();
            pods(cluster).delete(&first, &DeleteParams::default()).await.expect("a pod");
            cluster
                .until(&key("web"), |one: &Deployment| {
                    status_of(one).terminating_replicas == expected && status_of(one).replicas == Some(3)
                })
                .await;
            let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            pods(cluster).delete(&first, &now).await.expect("a pod");
            cluster.until(&key("web"), |one: &Deployment| status_of(one).terminating_replicas == after).await;
        });
    };
    check(true, Some(1), Some(0));
    check(false, None, None);
}

#[test]
fn a_stateful_set_update_replaces_several_pods_with_the_feature_gate() {
    let check = |on: bool, broken: usize, expected: usize| {
        let cluster = TestCluster::new().controllers(&["statefulset"]);
        cluster.feature("MaxUnavailableStatefulSet", on).run(async |cluster| {
            account(cluster).await;
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}});
            let more =
                json!({"podManagementPolicy": "Parallel", "serviceName": "web", "updateStrategy": strategy});
            cluster.create(set("StatefulSet", "web", 4, more)).await;
            cluster.settled(Duration::from_secs(5)).await;
            // On nodes, pods take a while to terminate.
            for name in names(&all_pods(cluster).await) {
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"kind": "Node", "name": "n"}});
                let request = http::Request::post(format!("/api/v1/namespaces/default/pods/{name}/binding"))
                    .body(binding.to_string().into_bytes())
                    .expect("a request");
                cluster.kube().request_text(request).await.expect("a binding");
            }
            make_ready(cluster).await;
            for name in names(&all_pods(cluster).await).iter().take(broken) {
                set_status(cluster, name, json!({"conditions": [{"type": "Ready", "status": "False"}]}))
                    .await;
            }
            cluster.settled(Duration::from_secs(5)).await;
            let patch = json!({"spec": {"template": {"metadata": {"annotations": {"new": "yes"}}}}});
            let sets: Api<StatefulSet> = Api::namespaced(cluster.kube(), "default");
            sets.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.expect("a set");
            cluster.settled(Duration::from_secs(5)).await;
            let going = all_pods(cluster).await;
            let going = going.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
            assert_eq!(going, expected, "with the feature {on} and {broken} broken");
        });
    };
    check(true, 0, 2);
    // Pods that are already broken count, so the update continues within the limit.
    check(true, 1, 1);
    check(true, 2, 0);
    check(false, 0, 1);
}

#[test]
fn the_status_of_sets_is_updated_although_pods_cannot_be_created() {
    TestCluster::new().controllers(&["statefulset", "daemonset", "resourcequota"]).run(async |cluster| {
        account(cluster).await;
        quota(cluster, 2).await;
        let more = json!({"podManagementPolicy": "Parallel", "serviceName": "sts"});
        cluster.create(set("StatefulSet", "sts", 4, more)).await;
        cluster
            .until(&key("sts"), |one: &StatefulSet| {
                one.status.as_ref().is_some_and(|status| status.replicas == 2)
            })
            .await;
    });
    TestCluster::new().controllers(&["daemonset", "resourcequota"]).run(async |cluster| {
        account(cluster).await;
        for n in 0..5 {
            cluster
                .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{n}")}}))
                .await;
        }
        quota(cluster, 2).await;
        let mut pods = template("ds");
        // New nodes without a heartbeat are tainted.
        pods["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        let spec = json!({"selector": {"matchLabels": {"app": "ds"}}, "template": pods});
        let metadata = json!({"name": "ds", "namespace": "default"});
        cluster
            .create(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}))
            .await;
        cluster
            .until(&key("ds"), |one: &DaemonSet| {
                let status = one.status.clone().unwrap_or_default();
                status.desired_number_scheduled == 5 && status.current_number_scheduled == 2
            })
            .await;
    });
}

#[test]
fn matching_pods_are_adopted_and_excess_pods_are_deleted() {
    TestCluster::new().controllers(&["replicaset"]).run(async |cluster| {
        account(cluster).await;
        for name in ["a", "b", "c"] {
            cluster.create(pod(name, json!({"app": "web"}), json!({}))).await;
        }
        cluster.create(pod("other", json!({"app": "other"}), json!({}))).await;
        cluster.create(set("ReplicaSet", "web", 2, json!({}))).await;
        cluster
            .until(&key("web"), |one: &ReplicaSet| {
                one.status
                    .as_ref()
                    .is_some_and(|status| status.replicas == 2 && status.fully_labeled_replicas == Some(2))
            })
            .await;
        cluster.settled(Duration::from_secs(5)).await;
        let left = all_pods(cluster).await;
        assert_eq!(left.len(), 3);
        let owned = left.iter().filter(|pod| pod.metadata.owner_references.is_some()).count();
        assert_eq!(owned, 2);
    });
}

#[test]
fn the_pod_with_the_lowest_deletion_cost_is_deleted_first_with_the_feature_gate() {
    let check = |on: bool| {
        TestCluster::new().controllers(&["replicaset"]).feature("PodDeletionCost", on).run(async |cluster| {
            account(cluster).await;
            cluster.create(set("ReplicaSet", "web", 2, json!({}))).await;
            cluster.settled(Duration::from_secs(5)).await;
            let made = all_pods(cluster).await;
            // Make the pod that is kept at random the cheap one.
            let sets: Api<ReplicaSet> = Api::namespaced(cluster.kube(), "default");
            let mut uids: Vec<_> =
                made.iter().map(|pod| (pod.metadata.uid.clone(), pod.metadata.name.clone())).collect();
            uids.sort();
            let kept = uids[1].1.clone().expect("a name");
            let cost =
                json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}});
            pods(cluster).patch(&kept, &PatchParams::default(), &Patch::Merge(cost)).await.expect("a pod");
            cluster.settled(Duration::from_secs(5)).await;
            let one = Patch::Merge(json!({"spec": {"replicas": 1}}));
            sets.patch("web", &PatchParams::default(), &one).await.expect("a set");
            cluster.settled(Duration::from_secs(5)).await;
            let left = names(&all_pods(cluster).await);
            assert_eq!(left == [kept], !on, "with the feature {on}");
        });
    };
    check(true);
    check(false);
}

#[test]
fn an_externally_managed_job_is_left_alone_with_the_feature_gate() {
    let check = |on: bool, expected: usize| {
        TestCluster::new().controllers(&["job"]).feature("JobManagedBy", on).run(async |cluster| {
            account(cluster).await;
            let mut spec = template("j");
            spec["spec"]["restartPolicy"] = json!("Never");
            let spec = json!({"managedBy": "example.com/other", "template": spec});
            let metadata = json!({"name": "j", "namespace": "default"});
            cluster
                .create(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))
                .await;
            cluster.settled(Duration::from_secs(5)).await;
            assert_eq!(all_pods(cluster).await.len(), expected);
            let job: Job = cluster.find(&key("j")).await.expect("a job");
            assert_eq!(job.status.unwrap_or_default().start_time.is_some(), expected > 0);
        });
    };
    check(true, 0);
    check(false, 1);
}

#[test]
fn a_pod_of_a_stateful_set_has_its_name_as_hostname() {
    TestCluster::new().controllers(&["statefulset"]).run(async |cluster| {
        account(cluster).await;
        cluster.create(set("StatefulSet", "web", 1, json!({"serviceName": "svc"}))).await;
        cluster.create(set("StatefulSet", "bare", 1, json!({}))).await;
        cluster.settled(Duration::from_secs(5)).await;
        for (name, subdomain) in [("web-0", Some("svc")), ("bare-0", None)] {
            let pod: Pod = cluster.find(&key(name)).await.expect("a pod");
            let spec = pod.spec.expect("a spec");
            assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some(name), subdomain));
        }
    });
}

#[test]
fn an_empty_budget_selector_selects_all_pods_and_a_missing_one_none() {
    TestCluster::new().controllers(&["disruption"]).run(async |cluster| {
        account(cluster).await;
        cluster.create(pod("labelled", json!({"app": "a"}), json!({}))).await;
        cluster.create(pod("bare", json!({}), json!({}))).await;
        make_ready(cluster).await;
        for (name, selector) in [("all", json!({})), ("none", Value::Null)] {
            let metadata = json!({"name": name, "namespace": "default"});
            let spec = json!({"minAvailable": 1, "selector": selector});
            let kind = "PodDisruptionBudget";
            cluster
                .create(json!({"apiVersion": "policy/v1", "kind": kind, "metadata": metadata, "spec": spec}))
                .await;
        }
        for (name, expected) in [("all", 2), ("none", 0)] {
            cluster
                .until(&key(name), |budget: &PodDisruptionBudget| {
                    let status = budget.status.as_ref();
                    status.is_some_and(|status| {
                        status.observed_generation == Some(1) && status.expected_pods == expected
                    })
                })
                .await;
        }
    });
}

async fn service(cluster: &Running, spec: Value) {
    let metadata = json!({"name": "svc", "namespace": "default"});
    cluster.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).await;
}

async fn slices(cluster: &Running) -> Vec<EndpointSlice> {
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.kube(), "default");
    let of = ListParams::default().labels("kubernetes.io/service-name=svc");
    slices.list(&of).await.expect("slices").items
}

async fn change_service(cluster: &Running, patch: Value) {
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::namespaced(cluster.kube(), "default");
    services.patch("svc", &PatchParams::default(), &Patch::Merge(patch)).await.expect("a service");
    cluster.settled(Duration::from_secs(5)).await;
}

#[test]
fn a_service_that_stops_being_an_external_name_gets_endpoints() {
    TestCluster::new().controllers(&["endpointslice", "endpoint"]).run(async |cluster| {
        account(cluster).await;
        cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).await;
        cluster.create(pod("p", json!({"app": "a"}), json!({"nodeName": "n"}))).await;
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let ips = json!([{"ip": "10.1.1.1"}]);
        set_status(
            cluster,
            "p",
            json!({"phase": "Running", "podIP": "10.1.1.1", "podIPs": ips, "conditions": conditions}),
        )
        .await;
        service(
            cluster,
            json!({"type": "ExternalName", "externalName": "x.example", "selector": {"app": "a"}}),
        )
        .await;
        cluster.settled(Duration::from_secs(5)).await;
        assert!(slices(cluster).await.is_empty());
        let spec = json!({"type": "ClusterIP", "externalName": null, "ports": [{"port": 80}]});
        change_service(cluster, json!({"spec": spec})).await;
        let found = slices(cluster).await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].endpoints[0].addresses, ["10.1.1.1"]);
    });
}

#[test]
fn mirrored_slices_go_when_a_service_gets_a_selector_and_come_back_when_it_loses_it() {
    TestCluster::new().controllers(&["endpointslicemirroring"]).run(async |cluster| {
        service(cluster, json!({"ports": [{"port": 80}]})).await;
        let metadata = json!({"name": "svc", "namespace": "default"});
        let subsets = json!([{"addresses": [{"ip": "10.2.2.2"}], "ports": [{"port": 80}]}]);
        cluster
            .create(
                json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}),
            )
            .await;
        cluster.settled(Duration::from_secs(5)).await;
        assert_eq!(slices(cluster).await.len(), 1);
        change_service(cluster, json!({"spec": {"selector": {"app": "a"}}})).await;
        assert!(slices(cluster).await.is_empty());
        change_service(cluster, json!({"spec": {"selector": null}})).await;
        assert_eq!(slices(cluster).await.len(), 1);
    });
}

#[test]
fn traffic_distribution_is_honoured_with_the_feature_gate() {
    let check = |on: bool, hinted: bool| {
        let cluster = TestCluster::new().controllers(&["endpointslice"]);
        cluster.feature("PreferSameTrafficDistribution", on).run(async |cluster| {
            account(cluster).await;
            let labels = json!({"topology.kubernetes.io/zone": "z"});
            let metadata = json!({"name": "n", "labels": labels});
            cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).await;
            cluster.create(pod("p", json!({"app": "a"}), json!({"nodeName": "n"}))).await;
            let conditions = json!([{"type": "Ready", "status": "True"}]);
            let ips = json!([{"ip": "10.1.1.1"}]);
            set_status(cluster, "p", json!({"phase": "Running", "podIP": "10.1.1.1", "podIPs": ips, "conditions": conditions})).await;
            let distribution = "PreferSameNode";
            service(cluster, json!({"selector": {"app": "a"}, "ports": [{"port": 80}], "trafficDistribution": distribution})).await;
            cluster.settled(Duration::from_secs(5)).await;
            let hints = slices(cluster).await[0].endpoints[0].hints.clone();
            assert_eq!(hints.and_then(|hints| hints.for_nodes).is_some(), hinted, "with the feature {on}");
        });
    };
    check(true, true);
    check(false, false);
}

#[test]
fn a_slice_holds_at_most_the_configured_number_of_endpoints() {
    let mut options = setpoint_controllers::Options::default();
    options.endpoints.max_endpoints_per_slice = 2;
    TestCluster::new().controllers(&["endpointslice"]).options(options).run(async |cluster| {
        account(cluster).await;
        cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).await;
        for n in 0..5 {
            let name = format!("p{n}");
            cluster.create(pod(&name, json!({"app": "a"}), json!({"nodeName": "n"}))).await;
            let ip = format!("10.1.1.{n}");
            let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
            set_status(cluster, &name, status).await;
        }
        service(cluster, json!({"selector": {"app": "a"}, "ports": [{"port": 80}]})).await;
        cluster.settled(Duration::from_secs(5)).await;
        let mut sizes: Vec<_> = slices(cluster).await.iter().map(|slice| slice.endpoints.len()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2, 2]);
    });
}

#[test]
fn an_autoscaler_may_scale_to_zero_with_the_feature_gate() {
    let hpa = || {
        let metric = json!({"type": "External", "external": {"metric": {"name": "m"},
            "target": {"type": "Value", "value": "1"}}});
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        let tolerance = json!({"scaleUp": {"tolerance": "0.3"}});
        let spec = json!({"minReplicas": 0, "maxReplicas": 3, "scaleTargetRef": target, "metrics": [metric],
            "behavior": tolerance});
        let kind = "HorizontalPodAutoscaler";
        json!({"apiVersion": "autoscaling/v2", "kind": kind, "metadata": {"name": "h", "namespace": "default"}, "spec": spec})
    };
    let on = TestCluster::new().feature("HPAScaleToZero", true).feature("HPAConfigurableTolerance", true);
    on.run(async |cluster| {
        cluster.create(hpa()).await;
        let made: HorizontalPodAutoscaler = cluster.find(&key("h")).await.expect("an autoscaler");
        let rules =
            made.spec.expect("a spec").behavior.and_then(|behavior| behavior.scale_up).expect("rules");
        assert_eq!(rules.tolerance.map(|tolerance| tolerance.0).as_deref(), Some("300m"));
    });
    TestCluster::new().run(async |cluster| {
        let api: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.kube(), "default");
        let refused =
            api.create(&Default::default(), &serde_json::from_value(hpa()).expect("an autoscaler")).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("minReplicas")));
    });
}

#[test]
fn the_nominated_node_is_cleared_on_binding_with_the_feature_gate() {
    for (on, expected) in [(false, Some("n")), (true, None)] {
        let cluster = TestCluster::new().feature("ClearingNominatedNodeNameAfterBinding", on);
        cluster.run(async |cluster| {
            account(cluster).await;
            cluster.create(pod("p", json!({}), json!({}))).await;
            set_status(cluster, "p", json!({"nominatedNodeName": "n"})).await;
            let pods: Api<Pod> = Api::namespaced(cluster.kube(), "default");
            let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
            let bound: Value =
                pods.create_subresource("binding", "p", &Default::default(), &binding).await.expect("bound");
            assert_eq!(bound["status"], "Success");
            let status = pods.get("p").await.expect("a pod").status.expect("a status");
            assert_eq!(status.nominated_node_name.as_deref(), expected);
        });
    }
}

#[test]
fn pods_get_the_topology_labels_of_their_node_with_the_feature_gate() {
    for (on, expected) in [(false, None), (true, Some("z"))] {
        let cluster = TestCluster::new().feature("PodTopologyLabelsAdmission", on);
        cluster.run(async |cluster| {
            account(cluster).await;
            let zone = "topology.kubernetes.io/zone";
            let metadata = json!({"name": "n", "labels": {zone: "z", "mine": "x"}});
            cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).await;
            cluster.create(pod("placed", json!({"app": "a"}), json!({"nodeName": "n"}))).await;
            cluster.create(pod("bound", json!({"app": "a"}), json!({}))).await;
            let pods: Api<Pod> = Api::namespaced(cluster.kube(), "default");
            let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
            let bound: Result<Value, _> =
                pods.create_subresource("binding", "bound", &Default::default(), &binding).await;
            bound.expect("bound");
            for name in ["placed", "bound"] {
                let labels = pods.get(name).await.expect("a pod").metadata.labels.unwrap_or_default();
                assert_eq!(labels.get(zone).map(String::as_str), expected, "{name}");
                assert_eq!(labels.get("app").map(String::as_str), Some("a"), "{name}");
                assert!(!labels.contains_key("mine"), "{name}");
            }
        });
    }
}

#[test]
fn service_names_may_start_with_a_digit_with_the_feature_gate() {
    for on in [false, true] {
        TestCluster::new().feature("RelaxedServiceNameValidation", on).run(async |cluster| {
            let services: Api<Service> = Api::namespaced(cluster.kube(), "default");
            let service = json!({"metadata": {"name": "1st"}, "spec": {"ports": [{"port": 80}]}});
            let service = serde_json::from_value(service).expect("a service");
            assert_eq!(services.create(&Default::default(), &service).await.is_ok(), on);
        });
    }
}

#[test]
fn token_requests_with_another_account_uid_are_rejected_with_the_feature_gate() {
    for on in [true, false] {
        let cluster = TestCluster::new().feature("TokenRequestServiceAccountUIDValidation", on);
        cluster.run(async |cluster| {
            account(cluster).await;
            let accounts: Api<ServiceAccount> = Api::namespaced(cluster.kube(), "default");
            let request = json!({"metadata": {"uid": "of-another"}, "spec": {"audiences": ["a"]}});
            let made: Result<Value, _> =
                accounts.create_subresource("token", "default", &Default::default(), &request).await;
            let is_conflict = made.is_err_and(|error| error.to_string().contains("does not match the UID"));
            assert_eq!(is_conflict, on);
        });
    }
}

#[test]
fn pods_with_conflicting_selinux_labels_get_events() {
    TestCluster::new().controllers(&["selinux-warning-controller", "persistentvolume-binder"]).run(async |cluster| {
        account(cluster).await;
        let driver = json!({"seLinuxMount": true, "attachRequired": false});
        cluster.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d.example"},
            "spec": driver})).await;
        let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"],
            "csi": {"driver": "d.example", "volumeHandle": "h"}, "claimRef": {"namespace": "default", "name": "c"}, "storageClassName": ""});
        cluster.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": volume})).await;
        let claim = json!({"accessModes": ["ReadWriteOncePod"], "volumeName": "v", "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}}});
        cluster.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "default"}, "spec": claim})).await;
        let driver = json!({"seLinuxMount": true});
        cluster.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": "ebs.csi.aws.com"}, "spec": driver})).await;
        let claimed = || json!({"persistentVolumeClaim": {"claimName": "c"}});
        let network = || json!({"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2025-01.example:x", "lun": 1}});
        let moved = || json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
        let relabelled = || json!({"hostPath": {"path": "/x"}});
        let pods = [
            ("one", "s0:c1,c2", claimed()), ("other", "s0:c3,c4", claimed()),
            ("near", "s0:c1,c2", network()), ("far", "s0:c3,c4", network()),
            ("old", "s0:c1,c2", moved()), ("older", "s0:c3,c4", moved()),
            ("here", "s0:c1,c2", relabelled()), ("there", "s0:c3,c4", relabelled()),
        ];
        for (name, level, mut volume) in pods {
            let mounts = json!([{"name": "v", "mountPath": "/v"}]);
            let containers = json!([{"name": "c", "image": "i", "volumeMounts": mounts}]);
            volume["name"] = json!("v");
            let volumes = json!([volume]);
            let context = json!({"seLinuxOptions": {"level": level}});
            cluster.create(pod(name, json!({}), json!({"containers": containers, "volumes": volumes,
                "securityContext": context}))).await;
        }
        cluster.settled(Duration::from_secs(5)).await;
        let events: Api<Event> = Api::namespaced(cluster.kube(), "default");
        let events = events.list(&ListParams::default()).await.expect("events").items;
        let mut reported: Vec<_> = events.iter()
            .filter(|event| event.reason.as_deref() == Some("SELinuxLabelConflict"))
            .filter_map(|event| event.involved_object.name.clone())
            .collect();
                reported.sort();
        assert_eq!(reported, ["far", "near", "old", "older", "one", "other"]);
    });
}

fn job(name: &str, pods: Value, more: Value) -> Value {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = json!("Never");
    merge(&mut template["spec"], pods);
    let mut spec = json!({"template": template});
    merge(&mut spec, more);
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
}

async fn change_job(cluster: &Running, name: &str, spec: Value) {
    let jobs: Api<Job> = Api::namespaced(cluster.kube(), "default");
    let patch = Patch::Merge(json!({"spec": spec}));
    jobs.patch(name, &PatchParams::default(), &patch).await.expect("a job");
    cluster.settled(Duration::from_secs(5)).await;
}

fn conditions(job: &Job) -> Vec<(String, String, String)> {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default().into_iter();
    conditions.map(|one| (one.type_, one.status, one.reason.unwrap_or_default())).collect()
}

fn owned_conditions(expected: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    let owned =
        |(one, two, three): &(&str, &str, &str)| ((*one).to_owned(), (*two).to_owned(), (*three).to_owned());
    expected.iter().map(owned).collect()
}

#[test]
fn a_job_completes_when_its_success_policy_is_met_and_its_other_pods_are_deleted() {
    TestCluster::new().controllers(&["job"]).run(async |cluster| {
        account(cluster).await;
        let rules = json!({"rules": [{"succeededCount": 1}]});
        let spec =
            json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "successPolicy": rules});
        cluster.create(job("j", json!({}), spec)).await;
        cluster.settled(Duration::from_secs(5)).await;
        let first = names(&all_pods(cluster).await)[0].clone();
        set_status(cluster, &first, json!({"phase": "Succeeded"})).await;
        let expected = owned_conditions(&[
            ("SuccessCriteriaMet", "True", "SuccessPolicy"),
            ("Complete", "True", "SuccessPolicy"),
        ]);
        let over = cluster.until(&key("j"), |job: &Job| conditions(job) == expected).await;
        let status = over.status.expect("a status");
        assert_eq!((status.succeeded, status.active.unwrap_or(0)), (Some(1), 0));
        cluster.settled(Duration::from_secs(5)).await;
        assert_eq!(names(&all_pods(cluster).await), [first]);
    });
}

#[test]
fn a_pod_is_replaced_only_once_it_has_failed_if_the_job_says_so() {
    TestCluster::new().controllers(&["job"]).run(async |cluster| {
        account(cluster).await;
        cluster.create(job("j", json!({"nodeName": "n"}), json!({"podReplacementPolicy": "Failed"}))).await;
        cluster.settled(Duration::from_secs(5)).await;
        let first = names(&all_pods(cluster).await)[0].clone();
        set_status(cluster, &first, json!({"phase": "Running"})).await;
        pods(cluster).delete(&first, &DeleteParams::default()).await.expect("a pod");
        cluster
            .until(&key("j"), |job: &Job| {
                let status = job.status.clone().unwrap_or_default();
                status.terminating == Some(1) && status.active.unwrap_or(0) == 0
            })
            .await;
        cluster.settled(Duration::from_secs(30)).await;
        assert_eq!(names(&all_pods(cluster).await), std::slice::from_ref(&first));
        set_status(cluster, &first, json!({"phase": "Failed"})).await;
        cluster
            .until(&key("j"), |job: &Job| {
                let status = job.status.clone().unwrap_or_default();
                status.failed == Some(1) && status.active == Some(1) && status.terminating == Some(0)
            })
            .await;
    });
}

#[test]
fn a_suspended_job_has_no_pods_until_it_is_resumed() {
    TestCluster::new().controllers(&["job"]).run(async |cluster| {
        account(cluster).await;
        cluster.create(job("j", json!({}), json!({"suspend": true, "parallelism": 2}))).await;
        let suspended = owned_conditions(&[("Suspended", "True", "JobSuspended")]);
        let waiting = cluster.until(&key("j"), |job: &Job| conditions(job) == suspended).await;
        assert!(waiting.status.expect("a status").start_time.is_none());
        assert!(all_pods(cluster).await.is_empty());
        change_job(cluster, "j", json!({"suspend": false})).await;
        let running: Job = cluster.find(&key("j")).await.expect("a job");
        assert_eq!(conditions(&running), owned_conditions(&[("Suspended", "False", "JobResumed")]));
        let status = running.status.expect("a status");
        assert!(status.start_time.is_some());
        assert_eq!(status.active, Some(2));
        change_job(cluster, "j", json!({"suspend": true})).await;
        assert!(all_pods(cluster).await.is_empty());
    });
}

#[test]
fn an_indexed_job_that_is_scaled_down_deletes_the_pods_of_dropped_indexes() {
    TestCluster::new().controllers(&["job"]).run(async |cluster| {
        account(cluster).await;
        let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4});
        cluster.create(job("j", json!({}), spec)).await;
        cluster.settled(Duration::from_secs(5)).await;
        assert_eq!(all_pods(cluster).await.len(), 4);
        change_job(cluster, "j", json!({"completions": 2, "parallelism": 2})).await;
        let mut left: Vec<_> = all_pods(cluster)
            .await
            .iter()
            .filter_map(|pod| {
                pod.metadata.annotations.as_ref()?.get("batch.kubernetes.io/job-completion-index").cloned()
            })
            .collect();
        left.sort();
        assert_eq!(left, ["0", "1"]);
    });
}

#[test]
fn orphaned_pods_are_released() {
    TestCluster::new().controllers(&["job", "garbagecollector"]).run(async |cluster| {
        account(cluster).await;
        cluster.create(job("j", json!({}), json!({}))).await;
        cluster.settled(Duration::from_secs(5)).await;
        let jobs: Api<Job> = Api::namespaced(cluster.kube(), "default");
        let orphan = DeleteParams {
            propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
            ..Default::default()
        };
        jobs.delete("j", &orphan).await.expect("a job");
        cluster.gone::<Job>(&key("j")).await;
        cluster.settled(Duration::from_secs(60)).await;
        let left = all_pods(cluster).await;
        assert_eq!(left.len(), 1);
        assert!(left[0].metadata.finalizers.clone().unwrap_or_default().is_empty());
        assert!(left[0].metadata.owner_references.clone().unwrap_or_default().is_empty());
    });
}

#[test]
fn a_pod_is_released_when_its_labels_change_and_adopted_when_they_change_back() {
    TestCluster::new().controllers(&["replicaset"]).run(async |cluster| {
        account(cluster).await;
        cluster.create(set("ReplicaSet", "web", 1, json!({}))).await;
        cluster.settled(Duration::from_secs(5)).await;
        let first = names(&all_pods(cluster).await)[0].clone();
        let relabel = async |app: &str| {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
            pods(cluster).patch(&first, &PatchParams::default(), &patch).await.expect("a pod");
            cluster.settled(Duration::from_secs(5)).await;
        };
        relabel("debug").await;
        let released: Pod = cluster.find(&key(&first)).await.expect("a pod");
        assert!(released.metadata.owner_references.unwrap_or_default().is_empty());
        assert_eq!(all_pods(cluster).await.len(), 2);
        relabel("web").await;
        let left = all_pods(cluster).await;
        assert_eq!(left.len(), 1);
        assert!(left[0].metadata.owner_references.is_some());
    });
}

#[test]
fn an_in_tree_volume_is_attached_by_its_csi_driver() {
    TestCluster::new().controllers(&["attachdetach", "persistentvolume-binder"]).run(async |cluster| {
        account(cluster).await;
        let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
        let metadata = json!({"name": "n", "annotations": managed});
        cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).await;
        let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"},
            "claimRef": {"namespace": "default", "name": "c"}});
        cluster.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": volume})).await;
        let claim = json!({"accessModes": ["ReadWriteOnce"], "volumeName": "v", "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}}});
        cluster.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "default"}, "spec": claim})).await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        cluster.create(pod("p", json!({}), json!({"nodeName": "n", "volumes": volumes}))).await;
        cluster.settled(Duration::from_secs(30)).await;
        let attachments: Api<k8s_openapi::api::storage::v1::VolumeAttachment> = Api::all(cluster.kube());
        let attachments = attachments.list(&ListParams::default()).await.expect("attachments").items;
        assert_eq!(attachments.len(), 1);
        let spec = &attachments[0].spec;
        assert_eq!((spec.attacher.as_str(), spec.node_name.as_str()), ("ebs.csi.aws.com", "n"));
        assert_eq!(spec.source.persistent_volume_name.as_deref(), Some("v"));
    });
}

/// A node with four CPUs that is not simulated.
async fn lone_node(cluster: &Running) {
    let size = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
    let metadata = json!({"name": "n", "labels": {"kubernetes.io/hostname": "n"}});
    let status = json!({"capacity": &size, "allocatable": &size});
    cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})).await;
}

/// A pod that requests this many CPUs, on any node.
fn hungry(name: &str, cpus: u32, labels: Value, more: Value) -> Value {
    let resources = json!({"requests": {"cpu": cpus.to_string()}});
    let mut spec = json!({
        "containers": [{"name": "c", "image": "i", "resources": resources}],
        "terminationGracePeriodSeconds": 300, "tolerations": [{"operator": "Exists"}],
    });
    merge(&mut spec, more);
    pod(name, labels, spec)
}

fn has_node(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn fits_nowhere(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.iter().any(|one| one.type_ == "PodScheduled" && one.reason.as_deref() == Some("Unschedulable"))
}

#[test]
fn resources_of_a_nominated_node_are_freed_when_the_nominee_is_deleted() {
    TestCluster::new().controllers(&[]).scheduler().run(async |cluster| {
        account(cluster).await;
        lone_node(cluster).await;
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10});
        cluster.create(class).await;
        cluster.create(hungry("victim", 3, json!({}), json!({}))).await;
        cluster.until(&key("victim"), has_node).await;
        cluster.create(hungry("high", 3, json!({}), json!({"priorityClassName": "high"}))).await;
        let promised = |pod: &Pod| {
            pod.status.as_ref().is_some_and(|status| status.nominated_node_name.as_deref() == Some("n"))
        };
        cluster.until(&key("high"), promised).await;
        cluster.create(hungry("small", 1, json!({}), json!({}))).await;
        cluster.until(&key("small"), fits_nowhere).await;
        pods(cluster).delete("high", &DeleteParams::default()).await.expect("a pod");
        cluster.until(&key("small"), has_node).await;
    });
}

#[test]
fn a_pending_pod_is_scheduled_when_another_pod_changes_its_labels_or_size() {
    TestCluster::new().controllers(&[]).scheduler().run(async |cluster| {
        account(cluster).await;
        lone_node(cluster).await;
        cluster.create(hungry("first", 3, json!({"app": "a"}), json!({}))).await;
        cluster.until(&key("first"), has_node).await;
        let term =
            json!({"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"});
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        cluster.create(hungry("apart", 1, json!({}), json!({"affinity": apart}))).await;
        cluster.until(&key("apart"), fits_nowhere).await;
        cluster.create(hungry("large", 2, json!({}), json!({}))).await;
        cluster.until(&key("large"), fits_nowhere).await;
        let relabel = Patch::Merge(json!({"metadata": {"labels": {"app": "b"}}}));
        pods(cluster).patch("first", &PatchParams::default(), &relabel).await.expect("a pod");
        cluster.until(&key("apart"), has_node).await;
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
        let shrink = Patch::Strategic(json!({"spec": {"containers": [container]}}));
        let (pods, params) = (pods(cluster), PatchParams::default());
        pods.patch_subresource("resize", "first", &params, &shrink).await.expect("a pod");
        cluster.until(&key("large"), has_node).await;
    });
}
