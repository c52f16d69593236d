//! A real Prometheus scrapes a real manager: every query of the dashboard returns data, and no alert fires.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::manager::{Manager, token};
use super::rights::{Deployed, WORK};
use super::{chart, deploy};
use crate::binary::{Answer, eventually, installed};

fn tool(name: &str) -> PathBuf {
    installed("prometheus", &[]).join(name)
}

fn promtool(arguments: &[&str]) -> Answer {
    Command::new(tool("promtool")).args(arguments).output().expect("promtool starts").into()
}

/// A running Prometheus, killed when dropped.
struct Prometheus {
    process: Child,
    url: String,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes a manager every second, and evaluates the chart's rules.
    fn start(manager: &Manager, token: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = directory.path().join("prometheus.yaml");
        fs::write(&config, configuration(manager, token).to_string()).expect("a configuration");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address").to_string();
        drop(listener);
        let process = Command::new(tool("prometheus"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stderr(Stdio::null())
            .spawn();
        let url = format!("http://{address}");
        Self { process: process.expect("prometheus starts"), url, _directory: directory }
    }

    fn query(&self, expression: &str) -> Value {
        let answer = promtool(&["query", "instant", "--format=json", &self.url, expression]);
        assert!(answer.ok, "{expression}: {}", answer.err);
        serde_json::from_str(&answer.out).expect("JSON")
    }

    fn finds(&self, expression: &str) -> bool {
        self.query(expression).as_array().is_some_and(|found| !found.is_empty())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn configuration(manager: &Manager, token: &str) -> Value {
    json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [chart().join("files/rules.yaml")],
        "scrape_configs": [{
            "job_name": "setpoint-controller-manager",
            "scheme": "https",
            "tls_config": {"insecure_skip_verify": true},
            "authorization": {"credentials": token},
            "static_configs": [{"targets": [manager.address()]}],
        }],
    })
}

/// Returns the queries of the dashboard, with its variables set to "all".
fn queries() -> BTreeSet<String> {
    let text = fs::read_to_string(chart().join("files/dashboard.json")).expect("a dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let filled = |target: &Value| {
        let expression = target["expr"].as_str().expect("a query").to_owned();
        let expression =
            expression.replace("$__rate_interval", "30s").replace("$job", "setpoint-controller-manager");
        let expression = expression.replace("$instance", ".*").replace("$controller", ".*");
        assert!(!expression.contains('$'), "unknown variable: {expression}");
        expression
    };
    targets.map(filled).collect()
}

#[test]
fn every_query_of_the_dashboard_finds_data_and_no_alert_fires() {
    let reader = "metrics.readers[0].name=reader,metrics.readers[0].namespace=default";
    let deployed = Deployed::new(&["--set", reader]);
    let up = &deployed.up;
    up.kubectl(&["create", "serviceaccount", "reader"]);
    let manager = Manager::start(up, &deployed.arguments);
    let prometheus = Prometheus::start(&manager, &token(up, "reader", "default"));
    up.kubectl_with(&["apply", "-f", "-"], WORK);
    up.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    up.kubectl(&["wait", "--for=condition=Complete", "job/once", "--timeout=60s"]);
    eventually("the manager is scraped", || {
        let up = r#"up{job="setpoint-controller-manager"} == 1"#;
        promtool(&["query", "instant", &prometheus.url, up]).out.contains("setpoint-controller-manager")
    });
    let queries = queries();
    assert!(queries.len() > 30, "the dashboard has been read: {queries:?}");
    for query in &queries {
        eventually(&format!("there is data for {query}"), || prometheus.finds(query));
    }
    // Rates divide by zero if nothing happens. All other values are numbers.
    let memory = prometheus.query("max(process_resident_memory_bytes)");
    assert!(memory[0]["value"][1].as_str().is_some_and(|bytes| bytes.parse::<f64>().is_ok_and(|b| b > 1e6)));
    let firing = prometheus.query(r#"ALERTS{alertstate="firing"}"#);
    assert_eq!(firing, json!([]), "no alert fires");
}

fn alerts(path: &Path, key: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(path).expect("rules");
    let named = |line: &str| Some(line.split_once(key)?.1.split([',', '}']).next()?.trim().to_owned());
    text.lines().filter_map(named).collect()
}

#[test]
fn every_alert_has_a_test_and_passes_it() {
    let (rules, tests) = (chart().join("files/rules.yaml"), deploy().join("tests/rules_test.yaml"));
    assert_eq!(
        alerts(&rules, "- alert: "),
        alerts(&tests, "alertname: "),
        "alerts and those that are tested"
    );
    for arguments in [["check", "rules"], ["test", "rules"]] {
        let file = if arguments[0] == "check" { &rules } else { &tests };
        let answer = promtool(&[arguments[0], arguments[1], file.to_str().expect("a path")]);
        assert!(answer.ok, "{}{}", answer.out, answer.err);
    }
}
