//! The example operators against the real binary, over TLS: they work as in the simulation.

use setpoint::{Context, Controller, ControllerConfig, Manager, Runtime};
use tokio_util::sync::CancellationToken;

use crate::binary::{Up, eventually};
use crate::kube_rs::config;

const WEB: &str = r#"
apiVersion: example.com/v1
kind: Application
metadata: {name: web}
spec: {image: "nginx:1", replicas: 2, port: 80}
"#;

const HELLO: &str = r#"
apiVersion: example.com/v1
kind: Widget
metadata: {name: hello}
spec: {text: good morning}
"#;

/// Runs an operator as its `main` does, until it is stopped.
pub(crate) async fn operate(
    up: &Up,
    name: &'static str,
    controller: fn(&Context) -> Controller,
    stop: &CancellationToken,
) {
    let (runtime, settings) = (Runtime::system(), ControllerConfig::default());
    let manager = Manager::connect(name, config(up).await, runtime, settings).await;
    let manager = manager.expect("the cluster can be reached").with(controller);
    tokio::spawn(manager.run(stop.clone()));
}

fn install(up: &Up, definition: &impl serde::Serialize, name: &str) {
    let definition = serde_json::to_string(definition).expect("it encodes");
    up.kubectl_with(&["apply", "-f", "-"], &definition);
    up.kubectl(&["wait", "--for=condition=Established", &format!("crd/{name}"), "--timeout=30s"]);
}

/// Returns whether kubectl shows the expected value at this path of an object.
fn shows(up: &Up, what: &str, path: &str, expected: &str) -> bool {
    let path = format!("jsonpath={{{path}}}");
    let answer = up.try_kubectl(&["get", what, "-o", &path], "");
    answer.ok && answer.out == expected
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_operators_work_against_the_binary() {
    let up = Up::start(&["--nodes", "1"]);
    let stop = CancellationToken::new();
    use setpoint_example_operator_template::widget as template;
    install(&up, &setpoint_example_application::definition(), "applications.example.com");
    install(&up, &template::definition(), "widgets.example.com");
    use setpoint_example_application as application;
    use setpoint_example_first_controller as first;
    operate(&up, application::CONTROLLER, application::controller, &stop).await;
    operate(&up, "greeter", first::greeter, &stop).await;
    operate(&up, template::CONTROLLER, template::controller, &stop).await;

    up.kubectl_with(&["apply", "-f", "-"], WEB);
    up.kubectl_with(&["apply", "-f", "-"], HELLO);
    up.kubectl(&["label", "namespace", "default", "greet=true"]);
    eventually("the application is ready", || shows(&up, "application/web", ".status.phase", "Ready"));
    up.kubectl(&["get", "deployment/web", "service/web"]);
    eventually("the widget is ready", || shows(&up, "widget/hello", ".status.ready", "true"));
    eventually("the namespace is greeted", || {
        shows(&up, "configmap/greeting", ".data.text", "hello, default")
    });
    up.kubectl(&["delete", "application/web", "--timeout=60s"]);
    eventually("what the application had is gone", || !up.try_kubectl(&["get", "deployment/web"], "").ok);
    stop.cancel();
}
