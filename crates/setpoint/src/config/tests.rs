use super::*;

/// Parses a file, or returns the error message.
fn read(yaml: &str) -> Result<ControllerConfig, String> {
    ControllerConfig::from_yaml(yaml).map_err(|error| error.to_string())
}

#[test]
fn every_key_of_a_file_is_understood() {
    let config = read(
        "
controller:
  # workers
  workers: 5
  queueSize: 1000
  clientQPS: 50      # a second
  clientBurst: 100
  clientConnections: 20
  maxRetries: 5
  retryBackoff: \"1s-5m\"
  queueConfig:
    rateLimiterQPS: 10
  reconcileConfig:
    timeout: 30s
    resyncPeriod: 10h
    maxConcurrent: 8
  informerConfig:
    cacheSize: 10000
    listTimeout: 60s
    incrementalSync: true
    consistencyCheckPeriod: 5m
  leaderElection:
    leaderElect: true
    resourceName: web
  tracing:
    endpoint: http://localhost:4318
",
    )
    .expect("a valid file");
    let seconds = Duration::from_secs;
    assert_eq!((config.workers, config.queue_size), (5, Some(1000)));
    assert_eq!((config.client_qps, config.client_burst, config.client_connections), (50.0, 100, Some(20)));
    let queue = QueueConfig {
        max_retries: Some(5),
        base_delay: seconds(1),
        max_delay: seconds(300),
        rate_limiter_qps: Some(10.0),
    };
    assert_eq!(config.queue_config, queue);
    let reconcile = ReconcileConfig {
        timeout: Some(seconds(30)),
        resync_period: Some(seconds(36_000)),
        max_concurrent: 8,
    };
    assert_eq!(config.reconcile_config, reconcile);
    assert_eq!(config.informer_config.cache_size, Some(10_000));
    assert_eq!(config.informer_config.consistency_check_period, Some(seconds(300)));
    assert_eq!(config.tracing.endpoint.as_deref(), Some("http://localhost:4318"));
    let election = config.election("manager", "me");
    assert_eq!((election.name.as_str(), election.identity.as_str()), ("web", "me"));
}

#[test]
fn errors_name_the_field_and_what_was_expected() {
    let check = |yaml: &str, expected: &str| {
        assert_eq!(read(yaml).expect_err(yaml), expected);
    };
    check("controller: {workers: 0}", "controller.workers: expected a whole number of at least 1, not \"0\"");
    check("{workers: -1}", "controller.workers: expected a whole number of at least 1, not \"-1\"");
    check(
        "controller: {workers: [5]}",
        "controller.workers: expected a whole number of at least 1, not \"[5]\"",
    );
    check("controller: {queueConfig: 5}", "controller.queueConfig: expected keys with values, not \"5\"");
    check(
        "controller: {clientQPS: fast}",
        "controller.clientQPS: expected a number of requests a second greater than 0, not \"fast\"",
    );
    check(
        "controller: {retryBackoff: 1s}",
        "controller.retryBackoff: expected two durations, such as 1s-5m, not \"1s\"",
    );
    check(
        "controller: {queueConfig: {baseDelay: 5 apples}}",
        "controller.queueConfig.baseDelay: expected a duration greater than 0 such as 500ms, 2s or 5m, not \"5 apples\"",
    );
    check(
        "controller: {retryBackoff: 5m-1s}",
        "controller.queueConfig.maxDelay: expected at least queueConfig.baseDelay (5m), not \"1s\"",
    );
    check(
        "controller: {adaptive: {enabled: true}, workers: 30}",
        "controller.reconcileConfig.maxConcurrent: expected at least workers (30), not \"20\"",
    );
    check(
        "controller: {leaderElection: {leaseDuration: 5s}}",
        "controller.leaderElection.leaseDuration: must be greater than renewDeadline (10s), not 5s",
    );
    check("controller: {quueSize: 5}", "controller.quueSize: unknown key; did you mean queueSize?");
    check(
        "controller: {reconcileConfig: {timeOut: 5}}",
        "controller.reconcileConfig.timeOut: unknown key; did you mean reconcileConfig.timeout?",
    );
    check("controller: {colour: red}", "controller.colour: unknown key");
    check(
        "controller: {sharding: {by: name}}",
        "controller.sharding.by: expected namespace or hash, not \"name\"",
    );
}

#[test]
fn every_setting_has_a_flag_and_shows_its_value() {
    for setting in SETTINGS {
        let mut config = ControllerConfig::default();
        let shown = (setting.show)(&config);
        if !shown.is_empty() {
            (setting.set)(&mut config, &shown).unwrap_or_else(|| panic!("{}: {shown}", setting.key));
            assert_eq!(config, ControllerConfig::default(), "{}", setting.key);
        }
        assert!(setting.flag().chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", setting.flag());
    }
    let flags: std::collections::BTreeSet<_> = SETTINGS.iter().map(Setting::flag).collect();
    assert_eq!(flags.len(), SETTINGS.len());
    assert!(flags.contains("--client-qps") && flags.contains("--queue-config-rate-limiter-qps"), "{flags:?}");
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("operator.yaml");
    std::fs::write(&file, "controller: {workers: 2, informerConfig: {listTimeout: 1s, cacheSize: 7}}")
        .expect("written");
    let arguments =
        [format!("--config={}", file.display()), "--workers".into(), "9".into(), "--verbose".into()];
    let environment = |name: &str| match name {
        "LIST_TIMEOUT" => Some("2s".to_owned()),
        "ENABLE_INCREMENTAL_SYNC" => Some("false".to_owned()),
        _ => None,
    };
    let (config, rest) = ControllerConfig::default().load(arguments, environment).expect("valid");
    assert_eq!((config.workers, rest), (9, vec!["--verbose".to_owned()]));
    let informer = InformerConfig {
        cache_size: Some(7),
        list_timeout: Duration::from_secs(2),
        incremental_sync: false,
        ..InformerConfig::default()
    };
    assert_eq!(config.informer_config, informer);
    let error = |arguments: &[&str]| {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        ControllerConfig::default()
            .load(arguments, |name| (name == "LIST_TIMEOUT").then(|| "now".into()))
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        error(&[]),
        "LIST_TIMEOUT: expected a duration greater than 0 such as 500ms, 2s or 5m, not \"now\""
    );
    assert_eq!(error(&["--workers"]), "--workers: expected a whole number of at least 1, not \"\"");
    assert!(error(&["--config", "/nowhere.yaml"]).starts_with("cannot read the configuration /nowhere.yaml"));
}

#[test]
fn durations_are_read_as_people_write_them() {
    let check = |text: &str, millis: Option<u64>| {
        assert_eq!(duration::parse(text), millis.map(Duration::from_millis), "{text}");
    };
    check("500ms", Some(500));
    check("1.5s", Some(1500));
    check("1h30m", Some(5_400_000));
    check("0", Some(0));
    for wrong in ["", "5", "s", "5x", "-5s", "1.2.3s", "5 s"] {
        check(wrong, None);
    }
    for millis in [0, 1, 1500, 60_000, 3_600_000, 90_000] {
        let shown = duration::show(Duration::from_millis(millis));
        check(&shown, Some(millis));
    }
}

#[test]
fn the_guide_explains_every_key() {
    let guide = include_str!("../../../../docs/guide/configuration.md");
    let missing: Vec<_> = SETTINGS.iter().filter(|one| !guide.contains(&format!("`{}`", one.key))).collect();
    assert!(missing.is_empty(), "{:?}", missing.iter().map(|setting| setting.key).collect::<Vec<_>>());
    let unread: Vec<_> =
        SETTINGS.iter().filter_map(|one| one.env).filter(|name| !guide.contains(name)).collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn debug_builds_check_cache_consistency_by_default() {
    let period = |yaml: &str| read(yaml).expect("a valid file").informer_config.consistency_check_period;
    assert_eq!(period("controller: {}").is_some(), cfg!(debug_assertions));
    assert_eq!(period("controller: {informerConfig: {consistencyCheckPeriod: 0}}"), None);
    assert_eq!(
        period("controller: {informerConfig: {consistencyCheckPeriod: 1m}}"),
        Some(Duration::from_secs(60))
    );
}
