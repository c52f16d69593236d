//! The files of a project: where each goes, when it exists, and whose it is.
//!
//! The templates are files in `templates/`, under names that end in `.jinja` so that no tool takes them for what they
//! become.

use crate::description::{Description, KindDescription, Language, Webhook};
use crate::render::Ownership;

/// A file of a project, before it is filled in.
pub(crate) struct Template {
    /// Its path in the project, which is a template too.
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
    pub(crate) per: Per,
    pub(crate) when: fn(&Description) -> bool,
    pub(crate) ownership: Ownership,
    pub(crate) executable: bool,
}

/// How often a template is filled in.
pub(crate) enum Per {
    /// Once.
    Project,
    /// For each kind for which this holds.
    Kind(fn(&KindDescription) -> bool),
    /// For each version of a kind for which this holds.
    Version(fn(&KindDescription, &str) -> bool),
}

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../templates/", $name, ".jinja"))
    };
}

impl Template {
    const fn of(path: &'static str, text: &'static str, per: Per, when: fn(&Description) -> bool) -> Self {
        Self { path, text, per, when, ownership: Ownership::Generated, executable: false }
    }

    /// A file of the project.
    const fn one(path: &'static str, text: &'static str, when: fn(&Description) -> bool) -> Self {
        Self::of(path, text, Per::Project, when)
    }

    /// A file of each kind.
    const fn each(path: &'static str, text: &'static str, when: fn(&Description) -> bool) -> Self {
        Self::of(path, text, Per::Kind(|_| true), when)
    }

    const fn starter(self) -> Self {
        Self { ownership: Ownership::Starter, ..self }
    }

    const fn executable(self) -> Self {
        Self { executable: true, ..self }
    }
}

const fn always(_: &Description) -> bool {
    true
}

fn is_rust(description: &Description) -> bool {
    description.language == Language::Rust
}

fn is_hook(description: &Description) -> bool {
    description.language.is_hook()
}

fn is_python(description: &Description) -> bool {
    description.language == Language::Python
}

fn is_javascript(description: &Description) -> bool {
    description.language == Language::JavaScript
}

fn is_shell(description: &Description) -> bool {
    description.language == Language::Shell
}

fn is_helm(description: &Description) -> bool {
    description.language == Language::Helm
}

fn is_ansible(description: &Description) -> bool {
    description.language == Language::Ansible
}

fn has_webhooks(description: &Description) -> bool {
    description.serves_webhooks()
}

fn has_admission(kind: &KindDescription) -> bool {
    kind.webhooks.contains(&Webhook::Defaulting) || kind.webhooks.contains(&Webhook::Validation)
}

fn is_converted(kind: &KindDescription, version: &str) -> bool {
    kind.stored != version
}

/// Files that are derived from others in the project, with what they are copies of: see `project.rs`.
pub(crate) const ROLE: &str = "config/rbac/role.yaml";
pub(crate) const CHART_ROLE: &str = "chart/files/role.yaml";
pub(crate) const DEFINITIONS: &str = "config/crd/bases";
pub(crate) const CHART_DEFINITIONS: &str = "chart/crds";
pub(crate) const HOOKS: &str = "hooks";
pub(crate) const CHARTS: &str = "helm-charts";
pub(crate) const ROLES: &str = "roles";

/// Every file.
pub(crate) const TEMPLATES: &[Template] = &[
    // Around the code.
    Template::one("README.md", text!("common/README.md"), always).starter(),
    Template::one("AGENTS.md", text!("common/AGENTS.md"), always),
    Template::one("Makefile", text!("common/Makefile"), always),
    Template::one("Dockerfile", text!("common/Dockerfile"), always),
    Template::one(".dockerignore", text!("common/dockerignore"), always),
    Template::one(".gitignore", text!("common/gitignore"), always),
    Template::one(".github/workflows/test.yml", text!("common/github/test.yml"), always),
    Template::one("tests/e2e.sh", text!("common/e2e.sh"), always).executable(),
    // Manifests.
    Template::each(
        "config/crd/bases/@{ kind.group }@_@{ kind.plural }@.yaml",
        text!("common/config/crd/crd.yaml"),
        always,
    )
    .starter(),
    Template::one("config/crd/kustomization.yaml", text!("common/config/crd/kustomization.yaml"), always),
    Template::of(
        "config/samples/@{ kind.group }@_@{ version.name }@_@{ kind.singular }@.yaml",
        text!("common/config/samples/sample.yaml"),
        Per::Version(|_, _| true),
        always,
    )
    .starter(),
    Template::one(
        "config/samples/kustomization.yaml",
        text!("common/config/samples/kustomization.yaml"),
        always,
    ),
    // The role of a project in Rust belongs to the author and to the project's own tests.
    Template::one(ROLE, text!("common/config/rbac/role.yaml"), is_rust).starter(),
    Template::one(ROLE, text!("common/config/rbac/role.yaml"), |project| !is_rust(project)),
    Template::one("config/rbac/role_binding.yaml", text!("common/config/rbac/role_binding.yaml"), always),
    Template::one(
        "config/rbac/service_account.yaml",
        text!("common/config/rbac/service_account.yaml"),
        always,
    ),
    Template::one(
        "config/rbac/leader_election_role.yaml",
        text!("common/config/rbac/leader_election_role.yaml"),
        always,
    ),
    Template::one(
        "config/rbac/webhook_role.yaml",
        text!("common/config/rbac/webhook_role.yaml"),
        has_webhooks,
    ),
    Template::each(
        "config/rbac/@{ kind.module }@_user_roles.yaml",
        text!("common/config/rbac/user_roles.yaml"),
        always,
    ),
    Template::one("config/rbac/kustomization.yaml", text!("common/config/rbac/kustomization.yaml"), always),
    Template::one("config/manager/namespace.yaml", text!("common/config/manager/namespace.yaml"), always),
    Template::one("config/manager/manager.yaml", text!("common/config/manager/manager.yaml"), always),
    Template::one(
        "config/manager/metrics_service.yaml",
        text!("common/config/manager/metrics_service.yaml"),
        always,
    ),
    Template::one(
        "config/manager/kustomization.yaml",
        text!("common/config/manager/kustomization.yaml"),
        always,
    ),
    Template::one("config/webhook/service.yaml", text!("common/config/webhook/service.yaml"), has_webhooks),
    Template::one(
        "config/webhook/kustomization.yaml",
        text!("common/config/webhook/kustomization.yaml"),
        has_webhooks,
    ),
    Template::one(
        "config/network-policy/network_policy.yaml",
        text!("common/config/network-policy/network_policy.yaml"),
        always,
    ),
    Template::one(
        "config/network-policy/kustomization.yaml",
        text!("common/config/network-policy/kustomization.yaml"),
        always,
    ),
    Template::one(
        "config/default/kustomization.yaml",
        text!("common/config/default/kustomization.yaml"),
        always,
    ),
    Template::one(
        "config/overlays/production/kustomization.yaml",
        text!("common/config/overlays/production/kustomization.yaml"),
        always,
    ),
    Template::one(
        "config/overlays/production/poddisruptionbudget.yaml",
        text!("common/config/overlays/production/poddisruptionbudget.yaml"),
        always,
    ),
    Template::one(
        "config/components/monitoring/kustomization.yaml",
        text!("common/config/components/monitoring/kustomization.yaml"),
        always,
    ),
    Template::one(
        "config/components/monitoring/servicemonitor.yaml",
        text!("common/config/components/monitoring/servicemonitor.yaml"),
        always,
    ),
    Template::one(
        "config/components/cert-manager/kustomization.yaml",
        text!("common/config/components/cert-manager/kustomization.yaml"),
        has_webhooks,
    ),
    Template::one(
        "config/components/cert-manager/certificate.yaml",
        text!("common/config/components/cert-manager/certificate.yaml"),
        has_webhooks,
    ),
    Template::one(
        "config/manifests/bases/@{ project.name }@.clusterserviceversion.yaml",
        text!("common/config/manifests/csv.yaml"),
        always,
    )
    .starter(),
    Template::one("config/scorecard/config.yaml", text!("common/config/scorecard/config.yaml"), always),
    // The Helm chart that installs the operator.
    Template::one("chart/Chart.yaml", text!("common/chart/Chart.yaml"), always),
    Template::one("chart/values.yaml", text!("common/chart/values.yaml"), always),
    Template::one("chart/.helmignore", text!("common/chart/helmignore"), always),
    Template::one("chart/templates/_helpers.tpl", text!("common/chart/templates/_helpers.tpl"), always),
    Template::one("chart/templates/rbac.yaml", text!("common/chart/templates/rbac.yaml"), always),
    Template::one("chart/templates/user_roles.yaml", text!("common/chart/templates/user_roles.yaml"), always),
    Template::one("chart/templates/deployment.yaml", text!("common/chart/templates/deployment.yaml"), always),
    Template::one("chart/templates/service.yaml", text!("common/chart/templates/service.yaml"), always),
    Template::one(
        "chart/templates/servicemonitor.yaml",
        text!("common/chart/templates/servicemonitor.yaml"),
        always,
    ),
    Template::one(
        "chart/templates/networkpolicy.yaml",
        text!("common/chart/templates/networkpolicy.yaml"),
        always,
    ),
    Template::one(
        "chart/templates/poddisruptionbudget.yaml",
        text!("common/chart/templates/poddisruptionbudget.yaml"),
        always,
    ),
    Template::one(
        "chart/templates/webhooks.yaml",
        text!("common/chart/templates/webhooks.yaml"),
        has_webhooks,
    ),
    // Rust.
    Template::one("Cargo.toml", text!("rust/Cargo.toml"), is_rust),
    Template::one("rustfmt.toml", text!("rust/rustfmt.toml"), is_rust).starter(),
    Template::one("src/main.rs", text!("rust/src/main.rs"), is_rust).starter(),
    Template::one("src/lib.rs", text!("rust/src/lib.rs"), is_rust),
    Template::each("src/@{ kind.module }@/mod.rs", text!("rust/src/kind/mod.rs"), is_rust),
    Template::each("src/@{ kind.module }@/controller.rs", text!("rust/src/kind/controller.rs"), is_rust)
        .starter(),
    Template::of(
        "src/@{ kind.module }@/@{ version.name }@.rs",
        text!("rust/src/kind/version.rs"),
        Per::Version(|_, _| true),
        is_rust,
    )
    .starter(),
    Template::of(
        "src/@{ kind.module }@/convert_@{ version.name }@.rs",
        text!("rust/src/kind/convert.rs"),
        Per::Version(is_converted),
        is_rust,
    )
    .starter(),
    Template::of(
        "src/@{ kind.module }@/webhook.rs",
        text!("rust/src/kind/webhook.rs"),
        Per::Kind(has_admission),
        is_rust,
    ),
    Template::one("tests/operator/main.rs", text!("rust/tests/main.rs"), is_rust),
    Template::one("tests/operator/manifests.rs", text!("rust/tests/manifests.rs"), is_rust),
    Template::each("tests/operator/@{ kind.module }@.rs", text!("rust/tests/kind.rs"), is_rust).starter(),
    // Hooks in other languages.
    Template::one("hooks/operator.yaml", text!("hooks/operator.yaml"), is_hook).starter(),
    Template::each("hooks/@{ kind.module }@.yaml", text!("hooks/controller.yaml"), is_hook).starter(),
    Template::one("hooks/main.py", text!("python/hooks/main.py"), is_python),
    Template::each("hooks/kinds/@{ kind.module }@.py", text!("python/hooks/kind.py"), is_python).starter(),
    Template::one("tests/test_main.py", text!("python/tests/test_main.py"), is_python).starter(),
    Template::each("tests/test_@{ kind.module }@.py", text!("python/tests/test_kind.py"), is_python)
        .starter(),
    Template::one("package.json", text!("javascript/package.json"), is_javascript).starter(),
    Template::one("hooks/main.mjs", text!("javascript/hooks/main.mjs"), is_javascript),
    Template::each("hooks/@{ kind.module }@.mjs", text!("javascript/hooks/kind.mjs"), is_javascript)
        .starter(),
    Template::one("tests/main.test.mjs", text!("javascript/tests/main.test.mjs"), is_javascript).starter(),
    Template::each(
        "tests/@{ kind.module }@.test.mjs",
        text!("javascript/tests/kind.test.mjs"),
        is_javascript,
    )
    .starter(),
    Template::one("hooks/main.sh", text!("shell/hooks/main.sh"), is_shell).executable(),
    Template::each("hooks/@{ kind.module }@.sh", text!("shell/hooks/kind.sh"), is_shell)
        .starter()
        .executable(),
    Template::one("tests/run.sh", text!("shell/tests/run.sh"), is_shell).starter().executable(),
    Template::one("tests/test_main.sh", text!("shell/tests/test_main.sh"), is_shell).starter(),
    Template::each("tests/test_@{ kind.module }@.sh", text!("shell/tests/test_kind.sh"), is_shell).starter(),
    // Charts.
    Template::one("watches.yaml", text!("helm/watches.yaml"), is_helm),
    Template::each("helm-charts/@{ kind.singular }@/Chart.yaml", text!("helm/chart/Chart.yaml"), is_helm)
        .starter(),
    Template::each("helm-charts/@{ kind.singular }@/values.yaml", text!("helm/chart/values.yaml"), is_helm)
        .starter(),
    Template::each(
        "helm-charts/@{ kind.singular }@/templates/configmap.yaml",
        text!("helm/chart/templates/configmap.yaml"),
        is_helm,
    )
    .starter(),
    Template::each(
        "helm-charts/@{ kind.singular }@/templates/NOTES.txt",
        text!("helm/chart/templates/NOTES.txt"),
        is_helm,
    )
    .starter(),
    Template::one("tests/charts.sh", text!("helm/tests.sh"), is_helm).starter().executable(),
    // Roles.
    Template::one("watches.yaml", text!("ansible/watches.yaml"), is_ansible),
    Template::one("requirements.yml", text!("ansible/requirements.yml"), is_ansible).starter(),
    Template::one("playbooks/site.yml", text!("ansible/playbook.yml"), is_ansible),
    Template::each(
        "roles/@{ kind.singular }@/tasks/main.yml",
        text!("ansible/role/tasks/main.yml"),
        is_ansible,
    )
    .starter(),
    Template::each(
        "roles/@{ kind.singular }@/defaults/main.yml",
        text!("ansible/role/defaults/main.yml"),
        is_ansible,
    )
    .starter(),
    Template::one("tests/roles.sh", text!("ansible/tests.sh"), is_ansible).executable(),
];
