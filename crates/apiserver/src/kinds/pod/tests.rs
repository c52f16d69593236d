//! Tables of errors in pods, their updates and their statuses.

use serde_json::{Value, json};

use super::strategy::Pod;
use crate::json::JsonMut;
use crate::kind::Subresource;
use crate::kinds::check::{self, shown};
use crate::strategy::{Lifecycle, Validation};

/// Builds a valid pod, with some fields of its spec replaced.
fn pod(change: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    merge(pod.object_mut("spec"), change);
    pod
}

/// Builds a valid pod whose only container has some fields replaced.
fn pod_with_container(change: &Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    merge(&mut container, change);
    pod(&json!({"containers": [container]}))
}

fn merge(target: &mut Value, change: &Value) {
    for (field, value) in change.as_object().into_iter().flatten() {
        target.set(field, value.clone());
    }
}

fn check_specs(rows: &[(Value, &[&str])]) {
    for (spec, expected) in rows {
        check::create(&Pod, pod(spec), expected);
    }
}

fn check_containers(rows: &[(Value, &[&str])]) {
    for (container, expected) in rows {
        let expected: Vec<String> =
            expected.iter().map(|error| error.replacen(' ', " spec.containers[0]", 1)).collect();
        check::create(
            &Pod,
            pod_with_container(container),
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
}

#[test]
fn containers_have_names_and_images() {
    check_specs(&[
        (json!({}), &[]),
        (json!({"containers": []}), &["Required spec.containers"]),
        (
            json!({"containers": [{}]}),
            &["Required spec.containers[0].name", "Required spec.containers[0].image"],
        ),
        (
            json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}),
            &["Duplicate spec.containers[1].name"],
        ),
        (
            json!({"containers": [{"name": "B_", "image": " i"}]}),
            &["Invalid spec.containers[0].name", "Invalid spec.containers[0].image"],
        ),
        (
            json!({"initContainers": [{"name": "c", "image": "i"}]}),
            &["Duplicate spec.initContainers[0].name"],
        ),
        (
            json!({"ephemeralContainers": [{"name": "e", "image": "i"}]}),
            &["Forbidden spec.ephemeralContainers"],
        ),
    ]);
    check_containers(&[
        (json!({"terminationMessagePolicy": "X"}), &["NotSupported .terminationMessagePolicy"]),
        (json!({"imagePullPolicy": "X"}), &["NotSupported .imagePullPolicy"]),
        (
            json!({"resizePolicy": [{"resourceName": "x", "restartPolicy": ""}]}),
            &["NotSupported .resizePolicy", "Required .resizePolicy"],
        ),
    ]);
}

#[test]
fn init_containers_are_not_probed_unless_they_stay() {
    let probe = json!({"tcpSocket": {"port": 1}});
    check_specs(&[
        (
            json!({"initContainers": [{"name": "i", "image": "i", "livenessProbe": probe}]}),
            &["Forbidden spec.initContainers[0].livenessProbe"],
        ),
        (
            json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always", "livenessProbe": probe,
                "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]}),
            &[],
        ),
    ]);
}

#[test]
fn ports_are_numbers_and_names_in_range() {
    check_containers(&[
        (json!({"ports": [{"containerPort": 0}]}), &["Required .ports[0].containerPort"]),
        (json!({"ports": [{"containerPort": 65536}]}), &["Invalid .ports[0].containerPort"]),
        (json!({"ports": [{"containerPort": 1, "name": "Bad_Name"}]}), &["Invalid .ports[0].name"]),
        (
            json!({"ports": [{"containerPort": 1, "name": "x"}, {"containerPort": 2, "name": "x"}]}),
            &["Duplicate .ports[1].name"],
        ),
        (
            json!({"ports": [{"containerPort": 1, "protocol": "X", "hostPort": -1}]}),
            &["Invalid .ports[0].hostPort", "NotSupported .ports[0].protocol"],
        ),
    ]);
    let port =
        |name: &str| json!({"name": name, "image": "i", "ports": [{"containerPort": 1, "hostPort": 9}]});
    check_specs(&[
        (json!({"containers": [port("a"), port("b")]}), &["Duplicate spec.containers[1].ports[0].hostPort"]),
        (
            json!({"hostNetwork": true, "containers": [port("a")]}),
            &["Invalid spec.containers[0].ports[0].hostPort"],
        ),
    ]);
}

#[test]
fn variables_have_names_and_one_source() {
    let from = |source: Value| json!({"env": [{"name": "A", "valueFrom": source}]});
    check_containers(&[
        (json!({"env": [{"name": "A.b-c", "value": "x"}]}), &[]),
        (json!({"env": [{"name": "", "value": "x"}]}), &["Required .env[0].name"]),
        (json!({"env": [{"name": "a=b", "value": "x"}]}), &["Invalid .env[0].name"]),
        (from(json!({})), &["Invalid .env[0].valueFrom"]),
        (from(json!({"fieldRef": {"fieldPath": "metadata.labels['a']"}})), &[]),
        (
            from(json!({"fieldRef": {"fieldPath": "metadata.labels"}})),
            &["NotSupported .env[0].valueFrom.fieldRef.fieldPath"],
        ),
        (
            from(json!({"fieldRef": {"fieldPath": "spec.nope"}})),
            &["Invalid .env[0].valueFrom.fieldRef.fieldPath"],
        ),
        (
            from(
                json!({"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "s", "key": "k"}}),
            ),
            &["Invalid .env[0].valueFrom"],
        ),
        (
            from(json!({"secretKeyRef": {"name": "s", "key": ""}})),
            &["Required .env[0].valueFrom.secretKeyRef.key"],
        ),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.nope"}})),
            &["NotSupported .env[0].valueFrom.resourceFieldRef.resource"],
        ),
        (
            from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}})),
            &["Invalid .env[0].valueFrom.resourceFieldRef.divisor"],
        ),
        (
            json!({"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            &["Invalid .env[0].valueFrom"],
        ),
        (
            json!({"envFrom": [{}, {"configMapRef": {}}]}),
            &["Invalid .envFrom", "Required .envFrom[1].configMapRef.name"],
        ),
    ]);
}

#[test]
fn probes_and_hooks_do_exactly_one_thing() {
    check_containers(&[
        (json!({"livenessProbe": {"periodSeconds": 1}}), &["Required .livenessProbe"]),
        (
            json!({"livenessProbe": {"tcpSocket": {"port": 1}, "exec": {"command": ["x"]}}}),
            &["Forbidden .livenessProbe.tcpSocket"],
        ),
        (
            json!({"livenessProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}}),
            &["Invalid .livenessProbe.successThreshold"],
        ),
        (
            json!({"readinessProbe": {"exec": {}, "successThreshold": 2, "terminationGracePeriodSeconds": 0}}),
            &[
                "Required .readinessProbe.exec.command",
                "Invalid .readinessProbe.terminationGracePeriodSeconds",
                "Invalid .readinessProbe.terminationGracePeriodSeconds",
            ],
        ),
        (
            json!({"livenessProbe": {"tcpSocket": {"port": "BAD_"}}}),
            &["Invalid .livenessProbe.tcpSocket.port", "Invalid .livenessProbe.tcpSocket.port"],
        ),
        (
            json!({"startupProbe": {"httpGet": {"port": 0, "scheme": "X", "httpHeaders": [{"name": "a b"}]}}}),
            &[
                "Invalid .startupProbe.httpGet.port",
                "NotSupported .startupProbe.httpGet.scheme",
                "Invalid .startupProbe.httpGet.httpHeaders",
            ],
        ),
        (json!({"lifecycle": {"preStop": {}}}), &["Required .lifecycle.preStop"]),
        (
            json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}),
            &["Invalid .lifecycle.preStop.sleep"],
        ),
    ]);
}

#[test]
fn volumes_have_names_and_one_source() {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        merge(&mut volume, &source);
        json!({"volumes": [volume]})
    };
    check_specs(&[
        (json!({"volumes": [{"name": "v"}, {"name": "v"}]}), &["Duplicate spec.volumes[1].name"]),
        (
            json!({"volumes": [{"name": "V"}, {}]}),
            &["Invalid spec.volumes[0].name", "Required spec.volumes[1].name"],
        ),
        (volume(json!({"emptyDir": {}, "hostPath": {"path": "/"}})), &["Forbidden spec.volumes[0].hostPath"]),
        (volume(json!({"emptyDir": {"sizeLimit": "-1"}})), &["Forbidden spec.volumes[0].emptyDir.sizeLimit"]),
        (volume(json!({"hostPath": {"path": "/a/../b"}})), &["Invalid spec.volumes[0].hostPath.path"]),
        (
            volume(json!({"hostPath": {"path": "/a", "type": "X"}})),
            &["NotSupported spec.volumes[0].hostPath.type"],
        ),
        (volume(json!({"secret": {}})), &["Required spec.volumes[0].secret.secretName"]),
        (
            volume(json!({"configMap": {"name": "c", "defaultMode": 4096}})),
            &["Invalid spec.volumes[0].configMap.defaultMode"],
        ),
        (
            volume(json!({"configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}})),
            &["Invalid spec.volumes[0].configMap.items[0].path"],
        ),
        (volume(json!({"nfs": {"server": "s", "path": "x"}})), &["Invalid spec.volumes[0].nfs.path"]),
        (volume(json!({"gcePersistentDisk": {}})), &["Required spec.volumes[0].persistentDisk.pdName"]),
        (volume(json!({"csi": {"driver": "A_"}})), &["Invalid spec.volumes[0].csi.driver"]),
        (
            volume(json!({"downwardAPI": {"items": [{"path": "/x"}]}})),
            &["Invalid spec.volumes[0].downwardAPI.path", "Required spec.volumes[0].downwardAPI"],
        ),
        (volume(json!({"ephemeral": {}})), &["Required spec.volumes[0].ephemeral.volumeClaimTemplate"]),
        (
            volume(json!({"ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "x"}, "spec": {}}}})),
            &[
                "Forbidden spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name",
                "Required spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes",
                "Required spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]",
            ],
        ),
        (
            json!({"serviceAccountName": "s", "volumes": [{"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "../t", "expirationSeconds": 1}},
                {"secret": {"name": "a", "items": [{"key": "k", "path": "p"}]}, "configMap": {"name": "b", "items": [{"key": "k", "path": "p"}]}}
            ]}}]}),
            &[
                "Invalid spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds",
                "Invalid spec.volumes[0].projected.path",
                "Invalid spec.volumes[0].projected",
                "Forbidden spec.volumes[0].projected.sources[1]",
            ],
        ),
        (
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
            &["Forbidden spec.volumes[0].projected.sources[0].serviceAccountToken"],
        ),
    ]);
}

#[test]
fn mounts_name_existing_volumes() {
    let mounted = |mounts: Value, more: Value| {
        let mut container = json!({"name": "c", "image": "i", "volumeMounts": mounts});
        merge(&mut container, &more);
        json!({"containers": [container], "volumes": [{"name": "v"}]})
    };
    let path = "spec.containers[0].volumeMounts";
    check_specs(&[
        (mounted(json!([{"name": "v", "mountPath": "/x"}]), json!({})), &[]),
        (
            mounted(json!([{"name": "w", "mountPath": "/x"}]), json!({})),
            &[&format!("NotFound {path}[0].name")],
        ),
        (
            mounted(json!([{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]), json!({})),
            &[&format!("Invalid {path}[1].mountPath")],
        ),
        (
            mounted(
                json!([{"name": "v", "mountPath": "/x", "subPath": "/a", "subPathExpr": "b"}]),
                json!({}),
            ),
            &[&format!("Invalid {path}.subPath"), &format!("Invalid {path}[0].subPathExpr")],
        ),
        (
            mounted(
                json!([{"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"}]),
                json!({}),
            ),
            &[&format!("Forbidden {path}.mountPropagation")],
        ),
        (
            mounted(json!([{"name": "v", "mountPath": "/x", "recursiveReadOnly": "Enabled"}]), json!({})),
            &[&format!("Forbidden {path}.recursiveReadOnly")],
        ),
        (
            mounted(
                json!([]),
                json!({"volumeDevices": [{"name": "v", "devicePath": "/x"}, {"name": "w", "devicePath": ".."}]}),
            ),
            &[
                "Invalid spec.containers[0].volumeDevices[0].name",
                "NotFound spec.containers[0].volumeDevices[1].name",
                "Invalid spec.containers[0].volumeDevices[1].devicePath",
            ],
        ),
    ]);
}

#[test]
fn resource_names_and_amounts_are_validated() {
    let with = |resources: Value| json!({"resources": resources});
    check_containers(&[
        (with(json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})), &["Invalid .resources.requests"]),
        (
            with(json!({"requests": {"widgets": "1"}})),
            &["Invalid .resources.requests[widgets]", "Invalid .resources.requests[widgets]"],
        ),
        (
            with(json!({"limits": {"example.com/x": "1.5"}})),
            &["Invalid .resources.limits[example.com/x]", "Invalid .resources.requests[example.com/x]"],
        ),
        (with(json!({"claims": [{"name": "c"}]})), &["NotFound .resources.claims[0]"]),
    ]);
    check_specs(&[
        (
            json!({"resources": {"limits": {"cpu": "1", "storage": "1"}}}),
            &["NotSupported spec.resources.limits[storage]"],
        ),
        (
            json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}},
                "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]}),
            &["Invalid spec.resources.requests[cpu]", "Invalid spec.resources.containers[0][cpu].limits"],
        ),
        (json!({"overhead": {"cpu": "-1"}}), &["Invalid spec.overhead.limits[cpu]"]),
        (
            json!({"resourceClaims": [{"name": "A"}, {"name": "b", "resourceClaimName": "c"}]}),
            &["Invalid spec.resourceClaims[0].name", "Invalid spec.resourceClaims[0]"],
        ),
    ]);
}

#[test]
fn scheduling_is_well_formed() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let spread = |constraint: Value| {
        let mut whole = json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"});
        merge(&mut whole, &constraint);
        json!({"topologySpreadConstraints": [whole]})
    };
    check_specs(&[
        (json!({"nodeSelector": {"bad key!": "v"}}), &["Invalid spec.nodeSelector"]),
        (
            json!({"tolerations": [{"key": "k", "operator": "X"}]}),
            &["NotSupported spec.tolerations[0].operator"],
        ),
        (
            json!({"tolerations": [{"operator": "Equal", "value": "v"}]}),
            &["Invalid spec.tolerations[0].operator"],
        ),
        (
            json!({"tolerations": [{"key": "k", "effect": "NoSchedule", "tolerationSeconds": 1}]}),
            &["Invalid spec.tolerations[0].effect"],
        ),
        (
            json!({"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": []}}}}),
            &[&format!("Required spec.affinity.nodeAffinity.{required}.nodeSelectorTerms")],
        ),
        (
            json!({"affinity": {"podAffinity": {preferred: [{"weight": 0, "podAffinityTerm": {"topologyKey": "z"}}]}}}),
            &[&format!("Invalid spec.affinity.podAffinity.{preferred}[0].weight")],
        ),
        (
            json!({"affinity": {"podAntiAffinity": {required: [{"topologyKey": "", "labelSelector": {}}]}}}),
            &[
                &format!("Required spec.affinity.podAntiAffinity.{required}[0].topologyKey"),
                &format!("Invalid spec.affinity.podAntiAffinity.{required}[0].topologyKey"),
                &format!("Invalid spec.affinity.podAntiAffinity.{required}[0].topologyKey"),
            ],
        ),
        (spread(json!({})), &[]),
        (
            spread(json!({"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X", "minDomains": 0})),
            &[
                "Invalid spec.topologySpreadConstraints[0].maxSkew",
                "Required spec.topologySpreadConstraints[0].topologyKey",
                "NotSupported spec.topologySpreadConstraints[0].whenUnsatisfiable",
                "Invalid spec.topologySpreadConstraints[0].minDomains",
                "Invalid spec.topologySpreadConstraints[0].minDomains",
            ],
        ),
        (
            spread(json!({"matchLabelKeys": ["a"]})),
            &["Forbidden spec.topologySpreadConstraints[0].matchLabelKeys"],
        ),
        (
            json!({"schedulingGates": [{"name": "g"}, {"name": "g"}], "nodeName": "n"}),
            &["Duplicate spec.schedulingGates[1]", "Forbidden spec.nodeName"],
        ),
        (
            json!({"readinessGates": [{"conditionType": "-"}]}),
            &["Invalid spec.readinessGates[0].conditionType"],
        ),
    ]);
}

#[test]
fn security_contexts_are_well_formed() {
    check_specs(&[
        (
            json!({"securityContext": {"runAsUser": -1, "fsGroup": 1_i64 << 31}}),
            &["Invalid spec.securityContext.fsGroup", "Invalid spec.securityContext.runAsUser"],
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
            &["Required spec.securityContext.seccompProfile.localhostProfile"],
        ),
        (
            json!({"securityContext": {"appArmorProfile": {"type": "X"}}}),
            &["NotSupported spec.securityContext.appArmorProfile.type"],
        ),
        (
            json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.a"}, {"name": "net.a"}, {"name": "A"}]}}),
            &[
                "Invalid spec.securityContext.sysctls[0].name",
                "Duplicate spec.securityContext.sysctls[1].name",
                "Invalid spec.securityContext.sysctls[1].name",
                "Invalid spec.securityContext.sysctls[2].name",
            ],
        ),
        (
            json!({"hostUsers": false, "hostNetwork": true, "hostPID": true}),
            &["Forbidden spec.hostNetwork", "Forbidden spec.HostPID"],
        ),
        (
            json!({"os": {"name": "windows"}, "securityContext": {"runAsUser": 1}}),
            &["Forbidden spec.securityContext.runAsUser"],
        ),
        (
            json!({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {"runAsUserName": "u"}}}),
            &["Forbidden spec.securityContext.windowsOptions"],
        ),
        (json!({"os": {"name": "dos"}}), &["NotSupported spec.os"]),
    ]);
    check_containers(&[
        (json!({"securityContext": {"privileged": true}}), &[]),
        (
            json!({"securityContext": {"privileged": true, "allowPrivilegeEscalation": false}}),
            &["Invalid .securityContext"],
        ),
        (json!({"securityContext": {"procMount": "Unmasked"}}), &["Invalid .securityContext.procMount"]),
        (
            json!({"securityContext": {"windowsOptions": {"runAsUserName": ""}}}),
            &["Invalid .securityContext.windowsOptions.runAsUserName"],
        ),
    ]);
}

#[test]
fn the_rest_of_a_spec_is_well_formed() {
    check_specs(&[
        (
            json!({"restartPolicy": "X", "dnsPolicy": "Y"}),
            &["NotSupported spec.restartPolicy", "NotSupported spec.dnsPolicy"],
        ),
        (json!({"activeDeadlineSeconds": 0}), &["Invalid spec.activeDeadlineSeconds"]),
        (
            json!({"hostname": "Bad.Host", "subdomain": "a.b"}),
            &["Invalid spec.hostname", "Invalid spec.subdomain"],
        ),
        (
            json!({"nodeName": "A", "priorityClassName": "A", "runtimeClassName": "A", "preemptionPolicy": "X"}),
            &[
                "Invalid spec.nodeName",
                "Invalid spec.priorityClassName",
                "Invalid spec.runtimeClassName",
                "NotSupported spec.preemptionPolicy",
            ],
        ),
        (
            json!({"hostAliases": [{"ip": "x", "hostnames": ["A"]}]}),
            &["Invalid spec.hostAliases[0].ip", "Invalid spec.hostAliases[0].hostnames[0]"],
        ),
        (json!({"dnsPolicy": "None"}), &["Required spec.dnsConfig"]),
        (json!({"dnsPolicy": "None", "dnsConfig": {}}), &["Required spec.dnsConfig.nameservers"]),
        (
            json!({"dnsConfig": {"nameservers": ["x"], "searches": ["_a.b.", ".", "-"], "options": [{}]}}),
            &[
                "Invalid spec.dnsConfig.nameservers[0]",
                "Invalid spec.dnsConfig.searches[2]",
                "Required spec.dnsConfig.options[0]",
            ],
        ),
    ]);
}

#[test]
fn annotations_of_pods_are_validated() {
    let annotated = |key: &str, value: &str| {
        let mut pod = pod(&json!({}));
        pod.object_mut("metadata").set("annotations", json!({key: value}));
        pod
    };
    check::create(
        &Pod,
        annotated("kubernetes.io/config.mirror", "x"),
        &["Invalid metadata.annotations[kubernetes.io/config.mirror]"],
    );
    check::create(
        &Pod,
        annotated("controller.kubernetes.io/pod-deletion-cost", "+1"),
        &["Invalid metadata.annotations[controller.kubernetes.io/pod-deletion-cost]"],
    );
    check::create(&Pod, annotated("container.apparmor.security.beta.kubernetes.io/c", "unconfined"), &[]);
    check::create(
        &Pod,
        annotated("container.apparmor.security.beta.kubernetes.io/x", "odd"),
        &["Invalid metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]"; 2],
    );
}

#[test]
fn most_fields_of_a_pod_are_immutable() {
    let toleration = json!({"key": "a", "operator": "Exists", "effect": "NoExecute"});
    let old = pod(&json!({"tolerations": [toleration], "activeDeadlineSeconds": 10}));
    let change = |change: Value, expected: &[&str]| {
        let mut new = old.clone();
        merge(new.object_mut("spec"), &change);
        let mut new_defaulted = new;
        Pod.default(&mut new_defaulted);
        check::update(&Pod, new_defaulted, &old, expected);
    };
    change(json!({}), &[]);
    change(json!({"containers": [{"name": "c", "image": "other", "imagePullPolicy": "Always"}]}), &[]);
    change(
        json!({"containers": [{"name": "c", "image": ""}]}),
        &["Required spec.containers[0].image", "Required spec.containers[0].image", "Forbidden spec"],
    );
    change(json!({"containers": [{"name": "d", "image": "i"}]}), &["Forbidden spec"]);
    change(
        json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}),
        &["Forbidden spec.containers"],
    );
    change(json!({"nodeName": "n"}), &["Forbidden spec"]);
    change(json!({"activeDeadlineSeconds": 5}), &[]);
    change(json!({"activeDeadlineSeconds": 11}), &["Invalid spec.activeDeadlineSeconds"]);
    change(json!({"activeDeadlineSeconds": null}), &["Invalid spec.activeDeadlineSeconds"]);
    change(json!({"tolerations": []}), &["Forbidden spec.tolerations"]);
    change(
        json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}, {"key": "b"}]}),
        &[],
    );
    change(json!({"schedulingGates": [{"name": "g"}]}), &["Forbidden spec.schedulingGates[0].name"]);
}

#[test]
fn scheduling_gates_can_be_removed_and_gated_pods_narrowed() {
    let old = pod(&json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}}));
    let change = |change: Value, expected: &[&str]| {
        let mut new = old.clone();
        merge(new.object_mut("spec"), &change);
        check::update(&Pod, new, &old, expected);
    };
    change(json!({"schedulingGates": []}), &[]);
    change(json!({"nodeSelector": {"a": "b", "c": "d"}}), &[]);
    change(json!({"nodeSelector": {"c": "d"}}), &["Invalid spec.nodeSelector"]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    change(json!({"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [term]}}}}), &[]);
}

#[test]
fn a_status_update_reverts_neither_qos_class_nor_termination() {
    let mut old = pod(&json!({"restartPolicy": "Never"}));
    old.set(
        "status",
        json!({"qosClass": "BestEffort", "containerStatuses": [{"name": "c", "state": {"terminated": {}}}]}),
    );
    let update = |status: Value| {
        let mut new = old.clone();
        new.set("status", status);
        Pod.default(&mut new);
        Pod.prepare_for_status_update(&mut new, &old);
        shown(&Pod.validate_status_update(&new, &old))
    };
    assert!(update(json!({"podIP": "1.2.3.4"})).is_empty());
    assert_eq!(update(json!({"qosClass": "Burstable"})), ["Invalid status.qosClass"]);
    assert_eq!(
        update(json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]})),
        ["Forbidden status.containerStatuses[0].state"]
    );
    assert_eq!(update(json!({"podIP": "x"})), ["Invalid status.podIPs[0]"]);
    assert_eq!(
        update(
            json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}], "hostIP": "1.1.1.1", "hostIPs": [{"ip": "1.1.1.2"}]})
        ),
        ["Invalid status.podIPs", "Invalid status.hostIPs[0].ip"]
    );
    assert_eq!(
        update(json!({"conditions": [{"type": "Ready"}, {"type": "-", "observedGeneration": -1}]})),
        ["Invalid status.conditions[1].observedGeneration", "Invalid status.conditions[1].Type"]
    );
}

fn through(subresource: Subresource, change: Value, old: &Value) -> Vec<String> {
    let (mut old, mut new) = (old.clone(), old.clone());
    merge(new.object_mut("spec"), &change);
    Pod.default(&mut old);
    Pod.default(&mut new);
    Pod.prepare_for_subresource_update(subresource, &mut new, &old);
    shown(&Pod.validate_subresource_update(subresource, &new, &old))
}

#[test]
fn ephemeral_containers_can_be_added_but_not_removed() {
    let old = pod(&json!({"ephemeralContainers": [{"name": "e", "image": "i"}]}));
    let change = |containers: Value| {
        through(Subresource::EphemeralContainers, json!({"ephemeralContainers": containers}), &old)
    };
    let kept = json!({"name": "e", "image": "i"});
    assert!(change(json!([kept, {"name": "f", "image": "i", "targetContainerName": "c"}])).is_empty());
    assert_eq!(change(json!([])), ["Forbidden spec.ephemeralContainers"]);
    assert_eq!(change(json!([{"name": "e", "image": "other"}])), ["Forbidden spec.ephemeralContainers"]);
    assert_eq!(
        change(
            json!([kept, {"name": "c", "image": "i", "ports": [{"containerPort": 1}], "targetContainerName": "x"}])
        ),
        [
            "Duplicate spec.ephemeralContainers[1].name",
            "NotFound spec.ephemeralContainers[1].targetContainerName",
            "Forbidden spec.ephemeralContainers[1].ports",
        ]
    );
}

#[test]
fn a_resize_keeps_the_qos_class_and_all_requests() {
    let resources = |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": "1Gi"}});
    let container =
        |resources: Value| json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
    let old = pod(&container(resources("1")));
    let change = |spec: Value| through(Subresource::Resize, spec, &old);
    assert!(change(container(resources("2"))).is_empty());
    assert!(change(json!({"nodeName": "n"})).is_empty());
    let burstable =
        json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(change(container(burstable)), ["Invalid spec"]);
    let removed = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}});
    assert_eq!(
        change(container(removed)),
        [
            "Invalid spec",
            "Forbidden spec.containers[0].resources.requests",
            "Forbidden spec.containers[0].resources.limits"
        ]
    );
    let more = json!({"limits": {"cpu": "1", "memory": "1Gi", "x.io/y": "1"}, "requests": {"cpu": "1", "memory": "1Gi", "x.io/y": "1"}});
    assert_eq!(change(container(more)), ["Forbidden spec"]);
    let renamed = json!({"containers": [{"name": "d", "image": "i", "resources": resources("1")}]});
    assert_eq!(change(renamed), ["Forbidden spec.containers[0].name"]);
}
