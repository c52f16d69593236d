//! Quota usage of ResourceClaims.

use serde::Deserialize;

use crate::resources::Resources;

const NUMBER: &str = "count/resourceclaims.resource.k8s.io";
const OF_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// The usage of a request for all devices.
const ALL: i64 = 32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Spec {
    devices: Devices,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Devices {
    requests: Vec<Request>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    exactly: Option<Wanted>,
    first_available: Vec<Wanted>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wanted {
    device_class_name: String,
    allocation_mode: String,
    count: i64,
}

pub(crate) fn counts(resource: &str) -> bool {
    resource == NUMBER || resource.ends_with(OF_CLASS)
}

impl DeviceClaim {
    pub(crate) fn usage(&self) -> Resources {
        let mut usage = Resources::new();
        usage.set_count(NUMBER, 1);
        for request in &self.spec.devices.requests {
            usage.add(&request.usage());
        }
        usage
    }
}

impl Request {
    /// Returns the usage. Of alternatives, the maximum per class counts.
    fn usage(&self) -> Resources {
        let mut usage = Resources::new();
        let exactly = self.exactly.as_slice();
        let wanted = if self.first_available.is_empty() { exactly } else { &self.first_available };
        for wanted in wanted {
            let mut one = Resources::new();
            one.set_count(format!("{}{OF_CLASS}", wanted.device_class_name), wanted.devices());
            usage.raise_to(&one);
        }
        usage
    }
}

impl Wanted {
    fn devices(&self) -> i64 {
        match self.allocation_mode.as_str() {
            "ExactCount" => self.count,
            "All" => ALL,
            _ => 0,
        }
    }
}
