use super::*;
use crate::description::{Description, KindDescription, Language, SetpointSource, Webhook};

fn project(language: Language) -> (tempfile::TempDir, Project) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut description = Description {
        name: "shop-operator".into(),
        language,
        version: "0.1.0".into(),
        image: "shop-operator:0.1.0".into(),
        setpoint: SetpointSource::Version("0.2.0".into()),
        kinds: vec![
            KindDescription::new("Shop", "example.com", "v1"),
            KindDescription::new("Policy", "b.example.com", "v1"),
        ],
    };
    if language == Language::Rust {
        description.kinds[0].webhooks = [Webhook::Validation].into();
        description.kinds[1].versions.push("v2".into());
    }
    let (project, _) =
        Project::create(&directory.path().join("shop"), description, false).expect("a project");
    (directory, project)
}

fn written(project: &Project) -> Files {
    let place = Place::existing(project.root()).expect("a project");
    write::files(project.description(), &place, &BundleOptions::default()).expect("a bundle").0
}

#[test]
fn the_bundle_of_a_new_project_is_valid() {
    for language in Language::ALL {
        let (_directory, project) = project(language);
        let options = BundleOptions {
            channels: vec!["alpha".into(), "stable".into()],
            replaces: Some("0.0.9".into()),
            ..BundleOptions::default()
        };
        let findings = bundle(&project, &options).expect("a bundle");
        // Hooks install the kinds of Metacontroller.
        let expected = |finding: &Finding| finding.message.contains("create CRDs") && language.is_hook();
        assert!(findings.iter().all(expected), "{language}: {findings:#?}");
        assert_eq!(validate(&project.root().join("bundle")).expect("a bundle"), findings);
        let files = read::files(&project.root().join("bundle")).expect("files");
        let csv = &files["manifests/shop-operator.clusterserviceversion.yaml"];
        for part in [
            "name: shop-operator.v0.1.0",
            "replaces: shop-operator.v0.0.9",
            "policies.b.example.com",
            "image: shop-operator:0.1.0",
        ] {
            assert!(csv.contains(part), "{part} in {csv}");
        }
        assert!(files[ANNOTATIONS].contains("channels.v1: alpha,stable"), "{}", files[ANNOTATIONS]);
        let dockerfile = std::fs::read_to_string(project.root().join("bundle.Dockerfile")).expect("a file");
        assert!(
            dockerfile.contains("LABEL operators.operatorframework.io.bundle.mediatype.v1=registry+v1\n"),
            "{dockerfile}"
        );
    }
}

#[test]
fn what_is_gone_from_the_project_is_gone_from_the_bundle() {
    let (_directory, project) = project(Language::Python);
    bundle(&project, &BundleOptions::default()).expect("a bundle");
    let old = project.root().join("bundle/manifests/old_v1_service.yaml");
    std::fs::write(&old, "{apiVersion: v1, kind: Service, metadata: {name: old}}").expect("a file");
    bundle(&project, &BundleOptions::default()).expect("a bundle");
    assert!(!old.exists());
}

#[test]
fn mistakes_are_found() {
    let (_directory, project) = project(Language::Rust);
    let files = written(&project);
    let check = |file: &str, from: &str, to: &str, severity: Severity, expected: &str| {
        let mut changed = files.clone();
        let text = changed.get_mut(file).unwrap_or_else(|| panic!("{file}"));
        assert!(text.contains(from), "{from} in {text}");
        *text = text.replace(from, to);
        let findings = check::findings(&changed);
        let found = findings.iter().any(|one| one.severity == severity && one.message.contains(expected));
        assert!(found, "{expected} in {findings:#?}");
    };
    let csv = "manifests/shop-operator.clusterserviceversion.yaml";
    let error = |from: &str, to: &str, expected: &str| check(csv, from, to, Severity::Error, expected);
    let warning = |from: &str, to: &str, expected: &str| check(csv, from, to, Severity::Warning, expected);
    error("name: shop-operator.v0.1.0", "name: Shop", "metadata.name: expected NAME.vX.Y.Z, not \"Shop\"");
    error(
        "name: shop-operator.v0.1.0",
        "name: shop-operator.v0.2.0",
        "metadata.name: expected the version of spec.version, 0.1.0",
    );
    error("  version: \"0.1.0\"", "  version: \"1\"", "spec.version: expected a semantic version");
    error("displayName: Shop Operator", "displayName: ''", "spec.displayName:");
    error(
        "email: you@example.com",
        "email: you",
        "spec.maintainers[0]: expected a name and an e-mail address",
    );
    error("url: https://example.com", "url: example", "spec.links[0]: expected a name and a URL");
    error("image/svg+xml", "image/x", "spec.icon[0].mediatype: expected one of");
    error("PHN2", "???PHN2", "spec.icon[0].base64data:");
    error("capabilities: Basic Install", "capabilities: Magic", "metadata.annotations.capabilities:");
    error("capabilities:", "Capabilities:", "metadata.annotations.Capabilities: expected capabilities");
    error("type: OwnNamespace", "type: AllNamespaces", "there are two of the type AllNamespaces");
    error("supported: true", "supported: false", "spec.installModes: expected one that is supported");
    error("type: OwnNamespace", "type: Nowhere", "spec.installModes[0].type: expected one of");
    error("kind: Policy", "kind: Politics", "expected a CRD policies.b.example.com with Politics");
    error("strategy: deployment", "strategy: magic", "spec.install.strategy: expected deployment");
    error("alm-examples: ", "alm-examples: 'x'\n    other: ", "expected a list of objects in JSON");
    error("\"kind\": \"Shop\"", "\"kind\": \"Store\"", "alm-examples[2]: expected an owned kind");
    warning("minKubeVersion: \"1.28.0\"", "minKubeVersion: ''", "spec.minKubeVersion:");
    error("minKubeVersion: \"1.28.0\"", "minKubeVersion: new", "spec.minKubeVersion: expected a version");
    error(
        "\nspec:\n",
        "\nspec:\n  webhookdefinitions: [{type: X, deploymentName: y}]\n",
        "spec.webhookdefinitions[0].deploymentName: expected a Deployment of the bundle",
    );
    let crd = "manifests/example.com_shops.yaml";
    check(
        crd,
        "storage: true",
        "storage: false",
        Severity::Error,
        "spec.versions: expected one with storage: true, not 0",
    );
    check(
        crd,
        "name: shops.example.com",
        "name: shop",
        Severity::Error,
        "metadata.name: expected shops.example.com",
    );
    check(
        crd,
        "apiextensions.k8s.io/v1",
        "apiextensions.k8s.io/v1beta1",
        Severity::Error,
        "gone since Kubernetes 1.22",
    );
    check(ANNOTATIONS, "registry+v1", "plain+v0", Severity::Error, "mediatype.v1: expected registry+v1");
    check(
        ANNOTATIONS,
        "default.v1: stable",
        "default.v1: beta",
        Severity::Error,
        "expected one of stable, not \"beta\"",
    );
    check(
        ANNOTATIONS,
        "package.v1: shop-operator",
        "package.v1: Shop!",
        Severity::Error,
        "package.v1: expected the name",
    );
}

#[test]
fn objects_that_olm_does_not_install_are_errors() {
    let (_directory, project) = project(Language::Helm);
    let mut files = written(&project);
    let mut add = |name: &str, text: &str| files.insert(format!("manifests/{name}.yaml"), text.to_owned());
    add("a", "{apiVersion: v1, kind: Pod, metadata: {name: a}}");
    add("b", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: shop-operator}}");
    add(
        "c",
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: c}, spec: {maxUnavailable: 0}}",
    );
    add("d", "not: [yaml");
    let messages: Vec<String> = check::findings(&files).iter().map(ToString::to_string).collect();
    for (file, expected) in [
        ("a", "kind: expected one that OLM installs"),
        ("b", "OLM creates the service account"),
        ("c", "spec.maxUnavailable"),
        ("d", "expected manifests in YAML"),
    ] {
        let start = format!("error: manifests/{file}.yaml: ");
        assert!(
            messages.iter().any(|one| one.starts_with(&start) && one.contains(expected)),
            "{messages:#?}"
        );
    }
    let none = check::findings(&Files::new());
    assert!(none.iter().any(|one| one.message.contains("expected one ClusterServiceVersion")), "{none:?}");
}

#[test]
fn a_bundle_with_errors_is_not_written() {
    let (_directory, project) = project(Language::Shell);
    let base = project.root().join("config/manifests/bases/shop-operator.clusterserviceversion.yaml");
    let text = std::fs::read_to_string(&base).expect("a file");
    std::fs::write(&base, text.replace("name: Your name\n  maintainers", "name: ''\n  maintainers"))
        .expect("a file");
    let findings = bundle(&project, &BundleOptions::default()).expect("findings");
    assert!(findings.iter().any(|one| one.message.contains("spec.provider.name")), "{findings:?}");
    assert!(!project.root().join("bundle").exists());
    let error = bundle(&project, &BundleOptions { version: Some("1".into()), ..BundleOptions::default() });
    assert!(error.expect_err("no version").to_string().starts_with("--version: expected a semantic version"));
    std::fs::write(&base, "a: [").expect("a file");
    assert!(
        bundle(&project, &BundleOptions::default())
            .expect_err("no YAML")
            .to_string()
            .contains("expected manifests in YAML")
    );
}
