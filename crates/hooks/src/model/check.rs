//! Checks of controllers that the schema cannot express. Errors name the field and what was expected.

use super::{ChildRule, CompositeSpec, DecoratorSpec, EndpointConfig, Hook, Hooks, Resource, Webhook};

/// The maximum number of each: every kind is watched.
const MAX_RESOURCES: usize = 256;

type Checked = Result<(), String>;

pub(crate) fn check_composite(spec: &CompositeSpec) -> Checked {
    resource("spec.parentResource", &spec.parent_resource.resource)?;
    let history = spec.parent_resource.revision_history.as_ref();
    for (nth, path) in history.iter().flat_map(|history| history.field_paths.iter().enumerate()) {
        if path.is_empty() || path.split('.').any(str::is_empty) {
            let field = format!("spec.parentResource.revisionHistory.fieldPaths[{nth}]");
            return Err(format!("{field}: expected a path such as spec.template, found {path:?}"));
        }
    }
    children("spec.childResources", &spec.child_resources)?;
    hooks(spec.hooks.as_ref(), &spec.endpoint_configs)?;
    period(spec.resync_period_seconds)
}

pub(crate) fn check_decorator(spec: &DecoratorSpec) -> Checked {
    if spec.resources.is_empty() || spec.resources.len() > MAX_RESOURCES {
        return Err(format!("spec.resources: expected 1 to {MAX_RESOURCES} resources"));
    }
    let named: Vec<&Resource> = spec.resources.iter().map(|rule| &rule.resource).collect();
    each_once("spec.resources", &named)?;
    children("spec.attachments", &spec.attachments)?;
    let rolling = |rule: &ChildRule| rule.update_strategy.method.is_rolling();
    if let Some(nth) = spec.attachments.iter().position(rolling) {
        let field = format!("spec.attachments[{nth}].updateStrategy.method");
        return Err(format!(
            "{field}: expected OnDelete, Recreate or InPlace: attachments are not rolled out"
        ));
    }
    hooks(spec.hooks.as_ref(), &spec.endpoint_configs)?;
    period(spec.resync_period_seconds)
}

fn resource(field: &str, resource: &Resource) -> Checked {
    let Resource { api_version, resource } = resource;
    let slashes = api_version.matches('/').count();
    if api_version.is_empty() || slashes > 1 || api_version.split('/').any(str::is_empty) {
        return Err(format!("{field}.apiVersion: expected VERSION or GROUP/VERSION, found {api_version:?}"));
    }
    match resource.is_empty() || resource.contains('/') {
        true => Err(format!("{field}.resource: expected a plural name such as pods, found {resource:?}")),
        false => Ok(()),
    }
}

fn children(field: &str, rules: &[ChildRule]) -> Checked {
    if rules.len() > MAX_RESOURCES {
        return Err(format!("{field}: expected at most {MAX_RESOURCES} resources"));
    }
    let named: Vec<&Resource> = rules.iter().map(|rule| &rule.resource).collect();
    each_once(field, &named)
}

fn each_once(field: &str, named: &[&Resource]) -> Checked {
    for (nth, one) in named.iter().enumerate() {
        resource(&format!("{field}[{nth}]"), one)?;
        if named[..nth].contains(one) {
            let Resource { api_version, resource } = one;
            return Err(format!("{field}[{nth}]: {resource} of {api_version} are listed twice"));
        }
    }
    Ok(())
}

fn hooks(hooks: Option<&Hooks>, endpoints: &[EndpointConfig]) -> Checked {
    let hooks = hooks.ok_or("spec.hooks: expected at least the hook sync")?;
    let has_webhook = |hook: &Option<Hook>| hook.as_ref().is_some_and(|hook| hook.webhook.is_some());
    if !has_webhook(&hooks.sync) {
        return Err("spec.hooks.sync: expected a webhook: without it, nothing says what should exist".into());
    }
    let all = [("sync", &hooks.sync), ("finalize", &hooks.finalize), ("customize", &hooks.customize)];
    for (name, hook) in all {
        if let Some(webhook) = hook.as_ref().and_then(|hook| hook.webhook.as_ref()) {
            self::webhook(&format!("spec.hooks.{name}.webhook"), webhook)?;
        }
    }
    for (nth, endpoint) in endpoints.iter().enumerate() {
        if endpoint.authorization.is_some() && endpoint.basic_auth.is_some() {
            return Err(format!(
                "spec.endpointConfigs[{nth}]: authorization and basicAuth exclude each other"
            ));
        }
    }
    Ok(())
}

fn webhook(field: &str, webhook: &Webhook) -> Checked {
    let named = |why: String| format!("{field}: {why}");
    webhook.address().map_err(named)?;
    webhook.time_limit().map_err(named)?;
    match webhook.authorization.is_some() && webhook.basic_auth.is_some() {
        true => Err(format!("{field}: authorization and basicAuth exclude each other")),
        false => Ok(()),
    }
}

fn period(seconds: Option<i32>) -> Checked {
    match seconds {
        Some(seconds) if seconds < 0 => {
            Err(format!("spec.resyncPeriodSeconds: expected a number of seconds, found {seconds}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn composite(change: impl FnOnce(&mut Value)) -> Checked {
        let mut spec = json!({
            "parentResource": {"apiVersion": "example.com/v1", "resource": "things"},
            "childResources": [{"apiVersion": "v1", "resource": "pods"}],
            "hooks": {"sync": {"webhook": {"url": "http://hook/sync"}}},
        });
        change(&mut spec);
        check_composite(&serde_json::from_value(spec).expect("a spec"))
    }

    #[track_caller]
    fn refused(checked: Checked, field: &str) {
        let error = checked.expect_err(field);
        assert!(error.starts_with(field), "{error}");
    }

    #[test]
    fn a_mistake_is_reported_with_its_field() {
        assert_eq!(composite(|_| {}), Ok(()));
        refused(composite(|spec| spec["hooks"] = json!(null)), "spec.hooks:");
        refused(composite(|spec| spec["hooks"] = json!({})), "spec.hooks.sync:");
        refused(composite(|spec| spec["hooks"]["sync"] = json!({})), "spec.hooks.sync:");
        let sync =
            |field: &str, value: Value| composite(|spec| spec["hooks"]["sync"]["webhook"][field] = value);
        refused(sync("url", json!(null)), "spec.hooks.sync.webhook: expected url");
        refused(sync("timeout", json!("soon")), "spec.hooks.sync.webhook: timeout");
        let version = |version: &str| composite(|spec| spec["parentResource"]["apiVersion"] = version.into());
        refused(version(""), "spec.parentResource.apiVersion:");
        refused(version("a/b/c"), "spec.parentResource.apiVersion:");
        refused(version("/v1"), "spec.parentResource.apiVersion:");
        refused(
            composite(|spec| spec["childResources"][0]["resource"] = "".into()),
            "spec.childResources[0].resource:",
        );
        let pods = json!({"apiVersion": "v1", "resource": "pods"});
        refused(composite(|spec| spec["childResources"] = json!([pods, pods])), "spec.childResources[1]:");
        refused(composite(|spec| spec["resyncPeriodSeconds"] = json!(-1)), "spec.resyncPeriodSeconds:");
        let paths = json!({"fieldPaths": ["spec..a"]});
        refused(
            composite(|spec| spec["parentResource"]["revisionHistory"] = paths),
            "spec.parentResource.revisionHistory.fieldPaths[0]:",
        );
    }

    #[test]
    fn attachments_are_not_rolled_out() {
        let spec = json!({
            "resources": [{"apiVersion": "v1", "resource": "pods"}],
            "attachments": [{"apiVersion": "v1", "resource": "services", "updateStrategy": {"method": "RollingInPlace"}}],
            "hooks": {"sync": {"webhook": {"url": "http://hook/sync"}}},
        });
        let checked = check_decorator(&serde_json::from_value(spec).expect("a spec"));
        refused(checked, "spec.attachments[0].updateStrategy.method:");
    }
}
