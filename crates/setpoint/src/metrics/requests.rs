//! Metrics of requests to API servers.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;

use super::histogram::{Histogram, REQUEST_SECONDS};

/// The metrics of the requests to one host.
#[derive(Default)]
pub(crate) struct Requests {
    tally: Mutex<Counters>,
}

/// By status code and method: a dozen codes, five methods.
#[derive(Clone, Default)]
pub(super) struct Counters {
    /// A code of 0 means no response.
    pub(super) answers: BTreeMap<(u16, Verb), u64>,
    pub(super) seconds: BTreeMap<Verb, Histogram>,
    pub(super) limited: BTreeMap<Verb, Histogram>,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Delete,
    Get,
    Patch,
    Post,
    Put,
}

impl Requests {
    /// Records a request. `code` is `None` if there was no response.
    pub(crate) fn answered(&self, method: &Method, code: Option<u16>, took: Duration) {
        let verb = Verb::of(method);
        let mut tally = self.tally.lock();
        *tally.answers.entry((code.unwrap_or(0), verb)).or_default() += 1;
        tally.seconds.entry(verb).or_insert_with(|| Histogram::new(REQUEST_SECONDS)).observe(took);
    }

    pub(crate) fn limited(&self, method: &Method, waited: Duration) {
        let mut tally = self.tally.lock();
        let histogram =
            tally.limited.entry(Verb::of(method)).or_insert_with(|| Histogram::new(REQUEST_SECONDS));
        histogram.observe(waited);
    }

    pub(super) fn tally(&self) -> Counters {
        self.tally.lock().clone()
    }
}

impl Verb {
    fn of(method: &Method) -> Self {
        match method.as_str() {
            "DELETE" => Self::Delete,
            "PATCH" => Self::Patch,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            _ => Self::Get,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Delete => "DELETE",
            Self::Get => "GET",
            Self::Patch => "PATCH",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}
