//! The packages for step templates: `vela/kube` and its siblings, and the older `vela/op`.
//!
//! A call is data: a struct with `#provider` and `#do`. The engine reads it, acts, and fills in the result.

use setpoint_cue::{Package, Packages, Source};

const TEXTS: &[(&str, &str)] = &[
    ("vela/kube", include_str!("cue/kube.cue")),
    ("vela/builtin", include_str!("cue/builtin.cue")),
    ("vela/oam", include_str!("cue/oam.cue")),
    ("vela/multicluster", include_str!("cue/multicluster.cue")),
    ("vela/http", include_str!("cue/http.cue")),
    ("vela/config", include_str!("cue/config.cue")),
    ("vela/metrics", include_str!("cue/metrics.cue")),
    ("vela/query", include_str!("cue/query.cue")),
    ("vela/ql", include_str!("cue/ql.cue")),
    ("vela/time", include_str!("cue/time.cue")),
    ("vela/util", include_str!("cue/util.cue")),
    ("vela/email", include_str!("cue/email.cue")),
    ("vela/op", include_str!("cue/op.cue")),
];

/// Returns all packages.
pub(crate) fn all() -> Packages {
    let parsed = TEXTS.iter().filter_map(|(path, text)| Some((*path, Source::parse(path, text).ok()?)));
    parsed
        .fold(Packages::new(), |packages, (path, source)| packages.with(path, Package::new().source(source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_parses() {
        for (path, text) in TEXTS {
            Source::parse(path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }
}
