//! Validates LimitRanges: names, and the order of bounds.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kinds::resources::amount;
use crate::names;
use crate::quantity::{Format, Quantity};
use crate::validation::Seen;
use crate::validation::resources::{self, can_overcommit};

/// Above this, the value in thousandths does not fit 64 bits.
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

pub(super) fn check(range: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let path = spec.child("limits");
    let limits = range.at("spec").list("limits");
    let mut types = Seen::new();
    for (index, limit) in limits.iter().enumerate() {
        let path = path.index(index);
        check_type(limit.text("type"), &path.child("type"), errors);
        if types.again(limit.text("type")) {
            errors.duplicate(&path.child("type"), limit.text("type"));
        }
        check_names(limit, &path, errors);
        let lists = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
        let resources: BTreeSet<&String> =
            lists.iter().filter_map(|list| limit.map(list)).flat_map(|list| list.keys()).collect();
        for resource in resources {
            Bounds::of(limit, resource).check(resource, &path, errors);
        }
    }
}

fn check_type(of: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = names::qualified_name(of);
    if !complaints.is_empty() {
        return crate::validation::add_invalid(complaints, of, path, errors);
    }
    if !of.contains('/') && !matches!(of, "Pod" | "Container" | "PersistentVolumeClaim") {
        errors.invalid(path, of, "must be a standard limit type or fully qualified");
    }
}

fn check_names(limit: &Value, path: &Path<'_>, errors: &mut Errors) {
    let of = limit.text("type");
    let check_list = |list: &str, errors: &mut Errors| {
        let path = path.child(list);
        for resource in limit.map(list).into_iter().flat_map(|list| list.keys()) {
            let path = path.key(resource);
            match of {
                "Pod" | "Container" => resources::container_name(resource, &path, errors),
                _ => resources::name(resource, &path, errors),
            }
        }
    };
    check_list("max", errors);
    check_list("min", errors);
    for list in ["default", "defaultRequest"] {
        match of {
            "Pod" if limit.map(list).is_some_and(|list| !list.is_empty()) => {
                errors.forbidden(&path.child(list), "may not be specified when `type` is 'Pod'");
            }
            "Pod" => {}
            _ => check_list(list, errors),
        }
    }
    let bounded = |list: &str| limit.at(list).has("storage");
    if of == "PersistentVolumeClaim" && !bounded("min") && !bounded("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
    check_list("maxLimitRequestRatio", errors);
}

/// All bounds of a limit for one resource.
struct Bounds {
    min: Option<Quantity>,
    max: Option<Quantity>,
    default: Option<Quantity>,
    default_request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl Bounds {
    fn of(limit: &Value, resource: &str) -> Self {
        let has_defaults = limit.text("type") != "Pod";
        let default = |list| amount(limit.at(list), resource).filter(|_| has_defaults);
        Self {
            min: amount(limit.at("min"), resource),
            max: amount(limit.at("max"), resource),
            default: default("default"),
            default_request: default("defaultRequest"),
            ratio: amount(limit.at("maxLimitRequestRatio"), resource),
        }
    }

    fn check(&self, resource: &str, path: &Path<'_>, errors: &mut Errors) {
        let Self { min, max, default, default_request: request, ratio } = *self;
        let mut in_order =
            |low: Option<Quantity>, high: Option<Quantity>, list: &str, shown, names: (&str, &str)| {
                if let (Some(low), Some(high)) = (low, high)
                    && low > high
                {
                    let shown: Quantity = if shown { low } else { high };
                    let detail = format!("{} value {low} is greater than {} value {high}", names.0, names.1);
                    errors.invalid(&path.child(list).key(resource), shown.to_string(), detail);
                }
            };
        in_order(min, max, "min", true, ("min", "max"));
        in_order(min, request, "defaultRequest", false, ("min", "default request"));
        in_order(request, max, "defaultRequest", true, ("default request", "max"));
        in_order(request, default, "defaultRequest", true, ("default request", "default limit"));
        in_order(min, default, "default", true, ("min", "default"));
        in_order(default, max, "default", false, ("default", "max"));
        if let Some(ratio) = ratio {
            self.check_ratio(ratio, &path.child("maxLimitRequestRatio").key(resource), errors);
        }
        if let (Some(default), Some(request)) = (default, request)
            && !can_overcommit(resource)
            && default != request
        {
            let detail =
                format!("default value {default} must equal to defaultRequest value {request} in {resource}");
            errors.invalid(&path.child("defaultRequest").key(resource), request.to_string(), detail);
        }
    }

    fn check_ratio(&self, ratio: Quantity, path: &Path<'_>, errors: &mut Errors) {
        if ratio < Quantity::new(1, Format::DecimalSi) {
            errors.invalid(path, ratio.to_string(), format!("ratio {ratio} is less than 1"));
        }
        let (Some(min), Some(max)) = (self.min, self.max) else { return };
        let fine = [ratio, min, max].iter().all(|amount| amount.value() < MAX_MILLI_VALUE);
        let (wanted, limit) = match fine {
            true => {
                (ratio.milli_value() as f64 / 1000.0, max.milli_value() as f64 / min.milli_value() as f64)
            }
            false => (ratio.value() as f64, max.value() as f64 / min.value() as f64),
        };
        if wanted > limit {
            let detail = format!("ratio {ratio} is greater than max/min = {limit:.6}");
            errors.invalid(path, ratio.to_string(), detail);
        }
    }
}
