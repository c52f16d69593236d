//! HorizontalPodAutoscalers in `autoscaling/v1`: converted to the stored form for all decisions, and back.

use serde_json::Value;

use super::HorizontalPodAutoscaler;
use super::convert::{CARRIED, to_v1, to_v2};
use crate::features::Features;
use crate::field::Errors;
use crate::json::JsonMut;
use crate::kind::{Conversion, Kind, Subresource};
use crate::kinds::{AUTOSCALING_V1, entry};
use crate::strategy::{Lifecycle, Presentation, Validation};

pub fn kind(features: &Features) -> Kind {
    let stored = super::kind(features);
    Kind {
        short_names: stored.short_names,
        categories: stored.categories,
        subresources: stored.subresources,
        columns: stored.columns,
        presentation: Presentation { field_annotations: &CARRIED, ..Presentation::default() },
        stored_as: stored.stored_as,
        conversion: Some(Conversion { to_stored: to_v2, from_stored: to_v1 }),
        semantics: super::semantics(),
        ..entry(
            &AUTOSCALING_V1,
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            V1(HorizontalPodAutoscaler::of(features)),
        )
    }
}

struct V1(HorizontalPodAutoscaler);

/// Converts the object to the stored form.
pub(super) fn stored(autoscaler: &Value) -> Value {
    let mut autoscaler = autoscaler.clone();
    to_v2(&mut autoscaler);
    autoscaler
}

fn change(autoscaler: &mut Value, change: impl FnOnce(&mut Value)) {
    to_v2(autoscaler);
    change(autoscaler);
    to_v1(autoscaler);
}

impl Lifecycle for V1 {
    fn default(&self, autoscaler: &mut Value) {
        autoscaler.object_mut("spec").or_insert("minReplicas", 1);
        // Makes implied values explicit: the default metric.
        change(autoscaler, |_| ());
    }

    fn prepare_for_create(&self, autoscaler: &mut Value) {
        change(autoscaler, |autoscaler| {
            super::semantics().prepare_for_create(autoscaler);
            self.0.prepare_for_create(autoscaler);
        });
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        let old = stored(old);
        change(new, |new| {
            super::semantics().prepare_for_update(None, new, &old);
            self.0.prepare_for_update(new, &old);
        });
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        let old = stored(old);
        change(new, |new| super::semantics().prepare_for_update(Some(Subresource::Status), new, &old));
    }
}

impl Validation for V1 {
    fn validate(&self, autoscaler: &Value) -> Errors {
        self.0.validate(&stored(autoscaler))
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        self.0.validate_update(&stored(new), &stored(old))
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        self.0.validate_status_update(&stored(new), &stored(old))
    }
}
