//! Validates the names of drivers, pools, devices and attributes.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::{Seen, add_invalid, csi_driver_name, dns_subdomain, too_long, too_many};

const POOL_BYTES: usize = 253;
const ID_BYTES: usize = 32;
const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";

/// Validates a pool name: subdomains separated by slashes.
pub(super) fn check_pool(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > POOL_BYTES {
        too_long(POOL_BYTES, path, errors);
    }
    for part in name.split('/') {
        dns_subdomain(part, path, errors);
    }
}

/// Validates an attribute name: an identifier with an optional domain.
pub(super) fn check_attribute_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "name required");
    }
    match name.split('/').collect::<Vec<_>>().as_slice() {
        [id] => check_identifier(id, path, errors),
        [domain, id] => {
            match *domain {
                "" => errors.required(path, "the domain must not be empty"),
                domain => csi_driver_name(domain, path, errors),
            }
            match *id {
                "" => errors.required(path, "the name must not be empty"),
                id => check_identifier(id, path, errors),
            }
        }
        _ => {}
    }
}

/// Validates an attribute name with a mandatory domain.
pub(super) fn check_full_attribute_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    check_attribute_name(name, path, errors);
    if !name.is_empty() && !name.contains('/') {
        errors.invalid(path, name, "must include a domain");
    }
}

fn check_identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.len() > ID_BYTES {
        too_long(ID_BYTES, path, errors);
    }
    let begins = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let fine = id.bytes().all(|b| begins(b) || b.is_ascii_digit()) && id.bytes().next().is_some_and(begins);
    if !fine {
        add_invalid(vec![C_IDENTIFIER.into()], id, path, errors);
    }
}

/// Validates each element, then the length of the list.
pub(super) fn check_each(
    list: &[Value],
    limit: usize,
    path: &Path<'_>,
    errors: &mut Errors,
    mut check: impl FnMut(&Value, &Path<'_>, &mut Errors),
) {
    for (index, item) in list.iter().enumerate() {
        check(item, &path.index(index), errors);
    }
    if list.len() > limit {
        too_many(list.len(), limit, path, errors);
    }
}

/// Requires that elements are distinct by a field, or as a whole if `field` is empty.
pub(super) fn check_distinct<'a>(
    list: &'a [Value],
    field: &str,
    key: impl Fn(&'a Value) -> &'a str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut seen = Seen::new();
    for (index, item) in list.iter().enumerate() {
        let key = key(item);
        if seen.again(key) {
            let path = path.index(index);
            match field {
                "" => errors.duplicate(&path, key),
                field => errors.duplicate(&path.child(field), key),
            }
        }
    }
}
