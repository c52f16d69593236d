//! Projects that `setpoint new` writes: their own tests, and the whole operator against the real binary. Projects in
//! Rust and for Ansible are built by `make test-new`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary::{Answer, Running, Up, eventually, kubectl};
use crate::charts;

/// A project in a directory of its own.
struct Project(tempfile::TempDir);

impl Project {
    fn new(language: &str, flags: &[&str]) -> Self {
        let project = Self(tempfile::tempdir().expect("a temporary directory"));
        let directory = project.root().display().to_string();
        let place = ["new", "shop-operator", "--lang", language, "--directory", &directory];
        project.setpoint(&[&place, flags].concat());
        project
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("shop")
    }

    /// Runs setpoint in the project, and expects it to succeed.
    fn setpoint(&self, arguments: &[&str]) -> Answer {
        self.run(Path::new(env!("CARGO_BIN_EXE_setpoint")), arguments)
    }

    fn make(&self, targets: &[&str]) -> Answer {
        self.run(Path::new("make"), &[&["--silent"], targets].concat())
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Answer {
        let mut command = Command::new(program);
        let place = if self.root().is_dir() { self.root() } else { self.0.path().to_owned() };
        command.args(arguments).current_dir(place).env("HOME", self.0.path()).env("PATH", charts::path());
        command.env("SETPOINT", env!("CARGO_BIN_EXE_setpoint")).env("KUBECTL", kubectl());
        command.env_remove("MAKEFLAGS").env_remove("KUBECONFIG").env("PYTHONDONTWRITEBYTECODE", "1");
        let answer = Answer::from(command.output().expect("the program starts"));
        assert!(answer.ok, "{} {arguments:?} failed:\n{}{}", program.display(), answer.out, answer.err);
        answer
    }
}

/// Tests a project, adds a cluster-scoped kind unless it is a chart, tests it again, and runs it.
fn lives(language: &str) {
    let project = Project::new(language, &[]);
    project.make(&["test"]);
    let scope: &[&str] = if language == "helm" { &[] } else { &["--cluster-scoped"] };
    project.setpoint(&[&["add", "kind", "Policy"], scope].concat());
    let done = project.make(&["test", "check", "e2e"]).out;
    for claim in ["the text is in the ConfigMap", "nothing is left", "policies are served"] {
        assert!(done.contains(&format!("ok - {claim}")), "{done}");
    }
    project.make(&["bundle"]);
    project.setpoint(&["bundle", "--validate", "bundle"]);
}

#[test]
fn a_project_in_python_is_generated_tested_and_run() {
    lives("python");
}

#[test]
fn a_project_in_javascript_is_generated_tested_and_run() {
    lives("javascript");
}

#[test]
fn a_project_in_shell_is_generated_tested_and_run() {
    lives("shell");
}

#[test]
fn a_project_with_charts_is_generated_tested_and_run() {
    lives("helm");
}

/// Installs a project, runs its operator with the service account's token on what the image contains, and applies a
/// sample.
fn runs_with_its_role(language: &str, image: &[&str]) {
    let project = Project::new(language, &[]);
    let up = Up::start(&["--nodes=0"]);
    let at = |path: &str| project.root().join(path).display().to_string();
    up.kubectl(&["apply", "--server-side", "--kustomize", &at("config/default")]);
    up.kubectl(&["wait", "--for=condition=Established", "crd/shops.example.com", "--timeout=30s"]);
    let token = up.kubectl(&["create", "token", "shop-operator", "--namespace=shop-operator-system"]);
    let kubeconfig = project.0.path().join("kubeconfig");
    std::fs::copy(up.kubeconfig(), &kubeconfig).expect("a copy");
    let shown = kubeconfig.display().to_string();
    let config = |arguments: &[&str]| {
        project.run(kubectl(), &[&["--kubeconfig", &shown, "config"], arguments].concat());
    };
    config(&["set-credentials", "account", &format!("--token={token}")]);
    config(&["set-context", "--current", "--user=account"]);
    let operator = project.0.path().join("operator");
    std::fs::create_dir(&operator).expect("a directory");
    for path in image {
        project.run(Path::new("cp"), &["-r", path, &operator.display().to_string()]);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(["operator", "run", "--bind-address=", "--kubeconfig", &shown]).env("PATH", charts::path());
    command.arg("--leader-elect-resource-namespace=shop-operator-system").arg("--filename").arg(&operator);
    let _running = Running(command.spawn().expect("the binary starts"));
    up.kubectl(&["apply", "--server-side", "--kustomize", &at("config/samples")]);
    let text = || up.try_kubectl(&["get", "configmap/shop-sample", "-o", "jsonpath={.data.text}"], "").out;
    eventually("the operator may do its work", || text() == "Hello!");
    up.kubectl(&["delete", "shop/shop-sample", "--timeout=60s"]);
}

#[test]
fn the_role_of_a_project_is_enough_for_its_operator() {
    runs_with_its_role("python", &["hooks/."]);
    runs_with_its_role("helm", &["watches.yaml", "helm-charts"]);
}

#[test]
fn the_manifests_of_a_project_are_accepted() {
    let project = Project::new("rust", &[]);
    project.setpoint(&["add", "version", "Shop", "v2", "--stored"]);
    project.setpoint(&["add", "webhook", "Shop", "--validation", "--defaulting"]);
    let up = Up::start(&["--nodes=0"]);
    let at = |path: &str| project.root().join(path).display().to_string();
    up.kubectl(&["apply", "--server-side", "--kustomize", &at("config/default")]);
    up.kubectl(&["wait", "--for=condition=Established", "crd/shops.example.com", "--timeout=30s"]);
    up.kubectl(&["apply", "--server-side", "--kustomize", &at("config/samples")]);
    let production = up.kubectl(&["kustomize", &at("config/overlays/production")]);
    for part in ["kind: ServiceMonitor", "kind: PodDisruptionBudget", "replicas: 2"] {
        assert!(production.contains(part), "{part} in {production}");
    }
    let overlay = project.root().join("config/overlays/certificates");
    std::fs::create_dir_all(&overlay).expect("a directory");
    let text = "resources: [../../default]\ncomponents: [../../components/cert-manager]\n";
    std::fs::write(overlay.join("kustomization.yaml"), text).expect("a file");
    let certificates = up.kubectl(&["kustomize", &overlay.display().to_string()]);
    for part in ["kind: Certificate", "mountPath: /certificates", "secretName: shop-operator-webhooks-tls"] {
        assert!(certificates.contains(part), "{part} in {certificates}");
    }
    let helm = charts::helm();
    project.run(&helm, &["lint", "--strict", "chart"]);
    let all = ["serviceMonitor.enabled", "certManager.enabled"].map(|value| format!("--set={value}=true"));
    let rendered =
        project.run(&helm, &["template", "--namespace=shops", "shop", "chart", &all[0], &all[1]]).out;
    for part in
        ["kind: ServiceMonitor", "kind: Certificate", "shop-shop-operator-webhooks.shops.svc", "shops/status"]
    {
        assert!(rendered.contains(part), "{part} in {rendered}");
    }
    up.kubectl(&["create", "namespace", "shops"]);
    let rendered = project.run(&helm, &["template", "--namespace=shops", "shop", "chart"]).out;
    up.kubectl_with(&["apply", "--server-side", "-f", "-"], &rendered);
    let account = "--as=system:serviceaccount:shops:shop-shop-operator";
    up.kubectl(&["auth", "can-i", "patch", "shops.example.com", "--subresource=status", account]);
}
