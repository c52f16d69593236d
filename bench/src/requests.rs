//! Requests per second over TLS, sent by `wrk`: durable creates, gets and lists. Also the memory of a full store.

use std::path::PathBuf;
use std::process::Command;

use http::Method;
use serde_json::json;

use crate::control_plane::{ControlPlane, TOKEN, block_on, call};
use crate::report::{Report, grouped};

const SECONDS: u32 = 10;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// A namespace that contains only the listed objects.
const LISTED: &str = "/api/v1/namespaces/listed/configmaps";
const LIST: usize = 500;

/// The number of objects in the last benchmark, with 256 bytes of payload each.
const HELD: usize = 100_000;

/// The load that `wrk` generates.
pub(crate) struct Load {
    name: &'static str,
    connections: u32,
    /// The script that generates the requests, unless they are plain GETs.
    script: Option<&'static str>,
}

pub(crate) const CREATES_LOAD: Load =
    Load { name: "creates of 256 bytes, durable", connections: 32, script: Some(CREATES) };

const LOADS: [(Load, &str); 3] = [
    (CREATES_LOAD, PATH),
    (
        Load { name: "gets of one object", connections: 32, script: None },
        "/api/v1/namespaces/default/configmaps/one",
    ),
    (Load { name: "lists of 500", connections: 2, script: None }, LISTED),
];

/// Each thread of `wrk` runs a copy, so names contain the thread's number.
const CREATES: &str = r#"
local threads, payload = 0, string.rep("x", 256)
function setup(thread) threads = threads + 1; thread:set("id", threads) end
function init() turn = 0; wrk.method = "POST"; wrk.headers["Content-Type"] = "application/json" end
function request()
  turn = turn + 1
  local name = "c-" .. id .. "-" .. turn
  return wrk.format(nil, nil, nil, '{"metadata":{"name":"' .. name .. '"},"data":{"payload":"' .. payload .. '"}}')
end
"#;

pub(crate) fn run() {
    block_on(measure());
}

async fn measure() {
    let plane = ControlPlane::start(&["--nodes", "0", "--no-scheduler"]).await;
    let client = plane.client().await;
    call(&client, Method::POST, PATH, config_map("one")).await;
    call(&client, Method::POST, "/api/v1/namespaces", json!({"metadata": {"name": "listed"}}).to_string())
        .await;
    for index in 0..LIST {
        call(&client, Method::POST, LISTED, config_map(&format!("c-{index}"))).await;
    }
    let mut report = Report::new("Requests over TLS", &["a second", "server CPU s/s", "MiB"]);
    let target =
        Target { url: plane.url().await, token: TOKEN.into(), directory: plane.directory().to_owned() };
    for (load, path) in LOADS {
        let (span, rate) = plane.during(async { target.wrk(&load, path) }).await;
        let cpu = span.cpu_seconds / span.seconds;
        report.row(load.name, [grouped(rate), format!("{cpu:.2}"), span.after.mib.to_string()]);
    }
    report.print();
    drop(plane);
    hold().await;
}

/// An API server under load.
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) token: String,
    /// For the files of this run.
    pub(crate) directory: PathBuf,
}

impl Target {
    /// Returns the requests per second. Unsuccessful responses fail the benchmark.
    pub(crate) fn wrk(&self, load: &Load, path: &str) -> u64 {
        let program = std::env::var("WRK").unwrap_or_else(|_| "wrk".into());
        let mut command = Command::new(&program);
        let connections = load.connections.to_string();
        command.args(["-t1", "-c", &connections, "-d", &SECONDS.to_string()]);
        command.args(["-H", &format!("Authorization: Bearer {}", self.token)]);
        if let Some(script) = load.script {
            let file = self.directory.join("load.lua");
            std::fs::write(&file, script).expect("the directory is there");
            command.arg("-s").arg(file);
        }
        let output = command.arg(format!("{}{path}", self.url)).output();
        let output = output.unwrap_or_else(|error| panic!("{program} (apt-get install wrk): {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("Non-2xx"), "{}: not every answer was a success:\n{text}", load.name);
        let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        rate.and_then(|rate| rate.trim().parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{program} said:\n{text}{}", String::from_utf8_lossy(&output.stderr)))
            as u64
    }
}

/// Measures the memory of a store full of ConfigMaps.
async fn hold() {
    let plane = ControlPlane::start(&["--nodes", "0", "--no-scheduler"]).await;
    let empty = plane.usage().mib;
    let client = plane.client().await;
    const AT_ONCE: usize = 64;
    for batch in (0..HELD).step_by(AT_ONCE) {
        let creates = (batch..(batch + AT_ONCE).min(HELD))
            .map(|index| call(&client, Method::POST, PATH, config_map(&format!("c-{index}"))));
        futures::future::join_all(creates).await;
    }
    let mut report = Report::new("Memory", &["MiB", "peak MiB"]);
    let full = plane.usage();
    report.row("empty", [empty.to_string(), String::new()]);
    report.row(
        &format!("{} ConfigMaps", grouped(HELD as u64)),
        [full.mib.to_string(), full.peak_mib.to_string()],
    );
    report.print();
}

pub(crate) fn config_map(name: &str) -> String {
    json!({"metadata": {"name": name}, "data": {"payload": "x".repeat(256)}}).to_string()
}
