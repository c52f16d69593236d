//! Steps that apply objects for programs which are not here: an image builder, KubeVela's command line, Terraform. The
//! objects are checked, and the programs are played by the test.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_sim::{TestCluster, World};

use super::*;

fn alone(test: impl AsyncFnOnce(&World)) {
    let cluster = TestCluster::new().controllers(&["serviceaccount-controller"]);
    cluster.with(setpoint_oam::runnables).run(async |world| {
        install(world).await;
        test(world).await;
    });
}

async fn run_step(world: &World, kind: &str, properties: Value) {
    let step = json!({"name": "it", "type": kind, "properties": properties});
    create_app(world, "app", json!({"components": [], "workflow": {"steps": [step]}})).await;
}

/// Waits for the only object of a kind.
async fn applied(world: &World, kind: &Kind, namespace: &str) -> Value {
    for _ in 0..60 {
        if let Some(found) = world.list(kind, Some(namespace)).await.into_iter().next() {
            return found;
        }
        world.pass(Duration::from_secs(1)).await;
    }
    panic!("no {kind}: {:?}", world.list(&applications(), None).await);
}

async fn set_status(world: &World, kind: &Kind, object: &Value, status: Value) {
    let meta = &object["metadata"];
    let key = Key::namespaced(meta["namespace"].as_str().unwrap(), meta["name"].as_str().unwrap());
    let patch = Patch::merge(&json!({"status": status}));
    world.client().patch(kind, &key, Subresource::Status, patch).await.expect("the status of a controller");
}

/// Serves kinds of the Terraform controller.
async fn serve_terraform(world: &World) -> [Kind; 2] {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let kinds = [("Configuration", "configurations", "v1beta2"), ("Provider", "providers", "v1beta1")];
    let definitions = Kind::new(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
    );
    for (kind, plural, version) in kinds {
        let version = json!({"name": version, "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": open}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.terraform.core.oam.dev")},
            "spec": {"group": "terraform.core.oam.dev", "scope": "Namespaced", "versions": [version],
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")}}});
        world.create(&definitions, None, definition).await;
    }
    kinds.map(|(kind, plural, version)| Kind::new("terraform.core.oam.dev", version, kind, plural, true))
}

#[test]
fn an_image_is_built_by_a_pod() {
    alone(async |world| {
        let properties = json!({"context": {"git": "github.com/a/b", "branch": "main"}, "image": "r/b:1", "buildArgs": ["X=1"],
            "credentials": {"image": {"name": "push"}, "git": {"name": "pull", "key": "token"}}});
        run_step(world, "build-push-image", properties).await;
        let pods = Kind::new("", "v1", "Pod", "pods", true);
        let pod = applied(world, &pods, "default").await;
        let container = &pod["spec"]["containers"][0];
        let arguments = [
            "--dockerfile=./Dockerfile",
            "--context=git://github.com/a/b#refs/heads/main",
            "--destination=r/b:1",
            "--verbosity=info",
            "--build-arg=X=1",
        ];
        assert_eq!(container["args"], json!(arguments));
        assert_eq!(container["env"][0]["valueFrom"]["secretKeyRef"], json!({"name": "pull", "key": "token"}));
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/kaniko/.docker/");
        assert_eq!(
            pod["spec"]["volumes"][0]["secret"]["items"][0],
            json!({"key": ".dockerconfigjson", "path": "config.json"})
        );
        assert!(pod["metadata"]["name"].as_str().unwrap().ends_with("-kaniko"));
        set_status(world, &pods, &pod, json!({"phase": "Succeeded"})).await;
        until_phase(world, "app", "running").await;
    });
}

#[test]
fn an_image_that_cannot_be_built_fails_the_step() {
    alone(async |world| {
        run_step(world, "build-push-image", json!({"context": "dir:///src", "image": "r/b:1"})).await;
        let pods = Kind::new("", "v1", "Pod", "pods", true);
        let pod = applied(world, &pods, "default").await;
        assert_eq!(pod["spec"]["containers"][0]["args"][1], "--context=dir:///src");
        set_status(world, &pods, &pod, json!({"phase": "Failed"})).await;
        let app = until_phase(world, "app", "workflowFailed").await;
        assert!(app["status"]["workflow"]["message"].as_str().unwrap().contains("-kaniko has failed"));
    });
}

#[test]
fn a_command_of_kubevela_is_run_by_a_job() {
    alone(async |world| {
        let secret = json!({"name": "s", "mountPath": "/s", "secretName": "creds"});
        let again = json!({"name": "s", "mountPath": "/t", "secretName": "creds"});
        let storage =
            json!({"secret": [secret, again], "hostPath": [{"name": "h", "path": "/h", "mountPath": "/h"}]});
        run_step(world, "vela-cli", json!({"command": ["vela", "ls"], "storage": storage})).await;
        let jobs = Kind::new("batch", "v1", "Job", "jobs", true);
        let job = applied(world, &jobs, "vela-system").await;
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(
            (&job["spec"]["backoffLimit"], &pod["serviceAccountName"]),
            (&json!(3), &json!("kubevela-vela-core"))
        );
        assert_eq!(pod["containers"][0]["command"], json!(["vela", "ls"]));
        let names = |list: &Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&pod["containers"][0]["volumeMounts"]), ["secret-s", "secret-s", "hostpath-h"]);
        assert_eq!(names(&pod["volumes"]), ["secret-s", "hostpath-h"]);
        set_status(world, &jobs, &job, json!({"succeeded": 1})).await;
        until_phase(world, "app", "running").await;
    });
}

#[test]
fn a_command_of_kubevela_that_keeps_failing_fails_the_step() {
    alone(async |world| {
        run_step(world, "vela-cli", json!({"command": ["vela", "ls"], "serviceAccountName": "own"})).await;
        let jobs = Kind::new("batch", "v1", "Job", "jobs", true);
        let job = applied(world, &jobs, "default").await;
        set_status(world, &jobs, &job, json!({"failed": 3})).await;
        let app = until_phase(world, "app", "workflowFailed").await;
        assert!(
            app["status"]["workflow"]["message"].as_str().unwrap().contains("failed to execute vela command")
        );
    });
}

#[test]
fn a_terraform_configuration_is_applied_and_waited_for() {
    alone(async |world| {
        let [configurations, _] = serve_terraform(world).await;
        let properties = json!({"source": {"hcl": "x"}, "variable": {"a": "1"}, "region": "r",
            "writeConnectionSecretToRef": {"name": "conn"}});
        run_step(world, "apply-terraform-config", properties).await;
        let found = applied(world, &configurations, "default").await;
        assert_eq!(found["metadata"]["name"], "app-it");
        let expected = json!({"hcl": "x", "variable": {"a": "1"}, "region": "r", "deleteResource": true, "forceDelete": false,
            "writeConnectionSecretToRef": {"name": "conn", "namespace": "default"}});
        assert_eq!(found["spec"], expected);
        set_status(world, &configurations, &found, json!({"apply": {"state": "Available"}})).await;
        until_phase(world, "app", "running").await;
    });
}

#[test]
fn a_terraform_provider_is_applied_with_its_credentials() {
    alone(async |world| {
        let [_, providers] = serve_terraform(world).await;
        let properties = json!({"type": "aws", "accessKey": "k", "secretKey": "s", "region": "eu"});
        run_step(world, "apply-terraform-provider", properties).await;
        let found = applied(world, &providers, "default").await;
        assert_eq!(
            (&found["metadata"]["name"], &found["spec"]["provider"]),
            (&json!("aws-provider"), &json!("aws"))
        );
        let reference = &found["spec"]["credentials"]["secretRef"];
        assert_eq!(reference["name"], "app-it");
        let secrets = Kind::new("", "v1", "Secret", "secrets", true);
        let secret = world.get(&secrets, &key("app-it")).await.expect("the credentials");
        assert_eq!(secret["metadata"]["labels"]["config.oam.dev/provider"], "terraform-aws");
        let expected = "awsAccessKeyID: k\nawsSecretAccessKey: s\nawsSessionToken: \"\"\n";
        assert_eq!(secret["data"]["credentials"], STANDARD.encode(expected));
        set_status(world, &providers, &found, json!({"state": "ready"})).await;
        until_phase(world, "app", "running").await;
    });
}

/// The keys are those that the Terraform controller reads.
#[test]
fn each_cloud_has_its_own_credentials() {
    alone(async |world| {
        serve_terraform(world).await;
        let keys = json!({"accessKey": "k", "secretKey": "s", "region": "r"});
        let azure = json!({"clientID": "c", "clientSecret": "s", "subscriptionID": "u", "tenantID": "t"});
        for (cloud, properties, expected) in [
            ("alibaba", keys.clone(), "accessKeyID: k\naccessKeySecret: s\n"),
            ("baidu", keys, "accessKey: k\nsecretKey: s\n"),
            ("azure", azure, "armClientID: c\narmClientSecret: s\narmSubscriptionID: u\narmTenantID: t\n"),
            ("ec", json!({"apiKey": "a"}), "ecApiKey: a\n"),
            (
                "gcp",
                json!({"credentials": "c", "project": "p", "region": "r"}),
                "gcpCredentialsJSON: c\ngcpProject: p\n",
            ),
            (
                "tencent",
                json!({"secretID": "i", "secretKey": "s", "region": "r"}),
                "secretID: i\nsecretKey: s\n",
            ),
            (
                "ucloud",
                json!({"publicKey": "b", "privateKey": "v", "projectID": "p", "region": "r"}),
                "publicKey: b\nprivateKey: v\nprojectID: p\n",
            ),
        ] {
            let mut properties = properties;
            properties["type"] = cloud.into();
            let step = json!({"name": "it", "type": "apply-terraform-provider", "properties": properties});
            create_app(world, cloud, json!({"components": [], "workflow": {"steps": [step]}})).await;
            let secrets = Kind::new("", "v1", "Secret", "secrets", true);
            let credentials = json!(STANDARD.encode(expected));
            until_value(world, &secrets, &format!("{cloud}-it"), "/data/credentials", credentials).await;
        }
    });
}

/// A restarted workflow runs its Jobs again.
#[test]
fn objects_that_are_named_after_a_step_are_made_again_by_another_run() {
    alone(async |world| {
        run_step(world, "vela-cli", json!({"command": ["vela", "ls"], "serviceAccountName": "own"})).await;
        let jobs = Kind::new("batch", "v1", "Job", "jobs", true);
        let first = applied(world, &jobs, "default").await;
        set_status(world, &jobs, &first, json!({"succeeded": 1})).await;
        until_phase(world, "app", "running").await;
        let restart = Patch::merge(&json!({"status": {"workflow": null}}));
        world
            .client()
            .patch(&applications(), &key("app"), Subresource::Status, restart)
            .await
            .expect("a restart");
        for _ in 0..60 {
            world.pass(Duration::from_secs(1)).await;
            if world
                .list(&jobs, Some("default"))
                .await
                .iter()
                .any(|job| job["metadata"]["name"] != first["metadata"]["name"])
            {
                return;
            }
        }
        panic!("there is no other Job");
    });
}

#[test]
fn without_the_terraform_controller_the_missing_kind_is_named() {
    alone(async |world| {
        run_step(world, "apply-terraform-config", json!({"source": {"hcl": "x"}, "variable": {}})).await;
        let app = until_phase(world, "app", "workflowFailed").await;
        let message = app["status"]["workflow"]["message"].as_str().unwrap();
        assert!(message.contains("terraform.core.oam.dev/v1beta2 Configuration"), "{message}");
    });
}

#[test]
fn the_secret_of_a_database_becomes_a_jdbc_connection() {
    alone(async |world| {
        let data =
            json!({"DB_HOST": "h", "DB_PORT": "3306", "DB_NAME": "n", "DB_USER": "u", "DB_PASSWORD": "p"});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "stringData": data});
        let secrets = Kind::new("", "v1", "Secret", "secrets", true);
        world.create(&secrets, Some("default"), secret).await;
        let steps = json!([
            {"name": "jdbc", "type": "generate-jdbc-connection", "properties": {"name": "db"},
                "outputs": [{"name": "url", "valueFrom": "env[0].value"}]},
            {"name": "show", "type": "print-message-in-status", "properties": {"message": ""},
                "inputs": [{"from": "url", "parameterKey": "message"}]},
        ]);
        create_app(world, "app", json!({"components": [], "workflow": {"steps": steps}})).await;
        let app = until_phase(world, "app", "running").await;
        let message = &app["status"]["workflow"]["steps"][1]["message"];
        assert_eq!(message, "jdbc://h:3306/n?characterEncoding=utf8&useSSL=false");
    });
}

#[test]
fn cloud_resources_are_refused_with_a_reason() {
    alone(async |world| {
        run_step(world, "share-cloud-resource", json!({"env": "prod", "placements": [{"cluster": "east"}]}))
            .await;
        let app = until_phase(world, "app", "workflowFailed").await;
        assert!(app["status"]["workflow"]["message"].as_str().unwrap().contains("are not supported"));
        let step = json!({"name": "it", "type": "deploy-cloud-resource", "properties": {"env": "prod"}});
        create_app(world, "other", json!({"components": [], "workflow": {"steps": [step]}})).await;
        until_phase(world, "other", "workflowFailed").await;
    });
}
