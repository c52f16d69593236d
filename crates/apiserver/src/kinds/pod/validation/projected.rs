//! Validates projected volumes.

use serde_json::Value;

use super::Rules;
use super::env::{Referrer, check_field, check_resource};
use super::sources::{key_to_path, mode};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::{Seen, paths, required};

const CONFLICT: &str = "conflicting duplicate paths";

pub(super) fn downward_api(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(volume, "defaultMode", path, errors);
    for file in volume.list("items") {
        downward_file(file, path, errors);
    }
}

fn downward_file(file: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(file, "path", path, errors);
    paths::not_reserved(file.text("path"), &path.child("path"), errors);
    let (field, resource) = (file.at("fieldRef"), file.at("resourceFieldRef"));
    if !field.is_null() {
        check_field(field, Referrer::File, &path.child("fieldRef"), errors);
        if !resource.is_null() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(path, "resource", detail);
        }
    } else if !resource.is_null() {
        check_resource(resource, Referrer::File, &path.child("resourceFieldRef"), errors);
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    mode(file, "mode", path, errors);
}

pub(super) fn check(volume: &Value, path: &Path<'_>, rules: &Rules, errors: &mut Errors) {
    mode(volume, "defaultMode", path, errors);
    let mut sources = Sources { path, rules, taken: Seen::new(), errors };
    let list = path.child("sources");
    for (index, source) in volume.list("sources").iter().enumerate() {
        sources.check(source, &list.index(index));
    }
}

/// The sources of a volume: no two may write the same file.
struct Sources<'a, 'p> {
    path: &'a Path<'p>,
    rules: &'a Rules,
    taken: Seen<&'a str>,
    errors: &'a mut Errors,
}

impl<'a> Sources<'a, '_> {
    fn check(&mut self, source: &'a Value, path: &Path<'_>) {
        let kinds = ["secret", "configMap", "downwardAPI", "serviceAccountToken"];
        let mut found = 0;
        for kind in kinds.into_iter().filter(|kind| source.has(kind)) {
            found += 1;
            let (source, path) = (source.at(kind), path.child(kind));
            match kind {
                "secret" | "configMap" => self.check_keys(source, &path),
                "downwardAPI" => self.check_downward_api(source, &path),
                _ => self.check_token(source, &path),
            }
        }
        if found > 1 {
            self.errors.forbidden(path, "may not specify more than 1 volume type per source");
        }
    }

    /// Records a file, which must be unique; what the error shows depends on the source.
    fn take(&mut self, file: &'a str, shown: &str) {
        if self.taken.again(file) {
            self.errors.invalid(self.path, shown, CONFLICT);
        }
    }

    fn check_keys(&mut self, source: &'a Value, path: &Path<'_>) {
        required(source, "name", path, self.errors);
        let items = path.child("items");
        for (index, item) in source.list("items").iter().enumerate() {
            key_to_path(item, &items.index(index), self.errors);
            if !item.text("path").is_empty() {
                self.take(item.text("path"), source.text("name"));
            }
        }
    }

    fn check_downward_api(&mut self, source: &'a Value, path: &Path<'_>) {
        for file in source.list("items") {
            downward_file(file, path, self.errors);
            if !file.text("path").is_empty() {
                self.take(file.text("path"), file.text("path"));
            }
        }
    }

    fn check_token(&mut self, token: &Value, path: &Path<'_>) {
        let seconds = token.count("expirationSeconds");
        let seconds_path = path.child("expirationSeconds");
        if seconds < 600 {
            self.errors.invalid(&seconds_path, seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > 1 << 32 {
            self.errors.invalid(
                &seconds_path,
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
        let file_path = self.path.child("path");
        match token.text("path") {
            "" => self.errors.required(&file_path, ""),
            _ if self.rules.allow_distant_token_paths => {}
            file => paths::not_reserved(file, &file_path, self.errors),
        }
    }
}

/// Rejects tokens: a pod without a service account has none.
pub(super) fn forbid_tokens(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("volumes");
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("projected");
        let path = path.child("sources");
        for (index, source) in volume.at("projected").list("sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&path.index(index).child("serviceAccountToken"), detail);
            }
        }
    }
}
