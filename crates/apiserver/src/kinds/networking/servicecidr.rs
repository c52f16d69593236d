//! ServiceCIDRs: the ranges of cluster IPs.

use serde_json::Value;

use super::NETWORKING;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::{entry, metadata};
use crate::strategy::{Lifecycle, Semantics, Validation};
use crate::table::Column;
use crate::validation::{IMMUTABLE, address};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("CIDRs", CIDRS, |range, _| cidrs(range).collect::<Vec<_>>().join(",").into()),
            Column::age(),
        ],
        semantics: Semantics { counts_generations: false, ..Semantics::default() },
        ..entry(&NETWORKING, "ServiceCIDR", "servicecidrs", ServiceCIDR)
    }
}

const CIDRS: &str = "CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which to assign service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is immutable.";

/// Returns the networks of a ServiceCIDR.
pub fn cidrs(range: &Value) -> impl Iterator<Item = &str> {
    range.at("spec").list("cidrs").iter().filter_map(Value::as_str)
}

struct ServiceCIDR;

impl Lifecycle for ServiceCIDR {}

impl Validation for ServiceCIDR {
    fn validate(&self, range: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(range, &mut errors);
        check_cidrs(range, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_change(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        errors
    }
}

fn check_cidrs(range: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let path = path.child("cidrs");
    let networks: Vec<&str> = cidrs(range).collect();
    match networks.len() {
        0 => return errors.required(&path, "at least one CIDR required"),
        1 | 2 => {}
        _ => return errors.invalid(&path, range.at("spec").clone(), "may only hold up to 2 values"),
    }
    for (index, network) in networks.iter().enumerate() {
        address::strict_cidr(network, &path.index(index), errors);
    }
    let is_v6 = |network: &&str| address::parse_cidr(network).map(|network| network.address.is_ipv6());
    if let [Some(first), Some(second)] = networks.iter().map(is_v6).collect::<Vec<_>>()[..]
        && first == second
    {
        let detail =
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, networks, detail);
    }
}

/// Checks that a range does not change, except that a second family can be added to a single one.
fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let path = path.child("cidrs");
    let (now, before): (Vec<&str>, Vec<&str>) = (cidrs(new).collect(), cidrs(old).collect());
    let is_addition = before.len() == 1 && now.len() == 2;
    if now.len() != before.len() && !is_addition {
        return errors.invalid(&path, now, IMMUTABLE);
    }
    for (index, (now, before)) in now.iter().zip(&before).enumerate() {
        if now != before {
            errors.invalid(&path.index(index), *now, IMMUTABLE);
        }
    }
    if is_addition {
        check_cidrs(new, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    fn range(cidrs: &[&str]) -> Value {
        json!({"spec": {"cidrs": cidrs}})
    }

    #[test]
    fn a_range_is_a_network_of_each_family_at_most() {
        let rows: [(&[&str], &[&str]); 7] = [
            (&["10.0.0.0/24", "fd00::/112"], &[]),
            (&[], &["Required spec.cidrs"]),
            (&["10.0.0.0/24", "10.1.0.0/24"], &["Invalid spec.cidrs"]),
            (&["10.0.0.0/24", "fd00::/112", "fd01::/112"], &["Invalid spec.cidrs"]),
            (&["10.0.0.1/24"], &["Invalid spec.cidrs[0]"]),
            (&["10.0.0.0/024"], &["Invalid spec.cidrs[0]"]),
            (&["x"], &["Invalid spec.cidrs[0]"]),
        ];
        for (cidrs, expected) in rows {
            check::create(&ServiceCIDR, range(cidrs), expected);
        }
    }

    #[test]
    fn a_range_can_only_get_the_other_family() {
        let old = range(&["10.0.0.0/24"]);
        check::update(&ServiceCIDR, range(&["10.0.0.0/24", "fd00::/112"]), &old, &[]);
        check::update(&ServiceCIDR, range(&["10.1.0.0/24"]), &old, &["Invalid spec.cidrs[0]"]);
        check::update(&ServiceCIDR, range(&[]), &old, &["Invalid spec.cidrs"]);
        check::update(&ServiceCIDR, range(&["10.0.0.0/24", "10.1.0.0/24"]), &old, &["Invalid spec.cidrs"]);
    }
}
