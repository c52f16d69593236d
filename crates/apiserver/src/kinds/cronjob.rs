//! CronJobs.

use serde_json::{Value, json};

use super::pod::template;
use super::{BATCH, entry, job, metadata};
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::Strategy;
use crate::table::{Column, time_since};

pub fn kind() -> Kind {
    let mut columns = vec![
        Column::name(),
        Column::text("Schedule", SCHEDULE, |cron, _| cron.at("spec").text("schedule").into()),
        Column::text("Timezone", TIME_ZONE, |cron, _| {
            cron.at("spec").at("timeZone").as_str().unwrap_or("<none>").into()
        }),
        Column {
            data_type: "boolean",
            ..Column::text("Suspend", SUSPEND, |cron, _| is_suspended(cron).into())
        },
        Column::integer("Active", ACTIVE, |cron, _| cron.at("status").list("active").len().into()),
        Column::text("Last Schedule", LAST_SCHEDULE, |cron, now| {
            match cron.at("status").text("lastScheduleTime") {
                "" => "<none>".into(),
                time => time_since(time, now).into(),
            }
        }),
        Column::age(),
    ];
    columns.extend(template::columns(job::SELECTOR));
    Kind {
        short_names: vec!["cj".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Status],
        columns,
        ..entry(&BATCH, "CronJob", "cronjobs", CronJob)
    }
}

const SCHEDULE: &str = "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron.";
const TIME_ZONE: &str = "The time zone name for the given schedule, see https://en.wikipedia.org/wiki/List_of_tz_database_time_zones. If not specified, this will default to the time zone of the kube-controller-manager process. The set of valid time zone names and the time zone offset is loaded from the system-wide time zone database by the API server during CronJob validation and the controller manager during execution. If no system-wide time zone database can be found a bundled version of the database is used instead. If the time zone name becomes invalid during the lifetime of a CronJob or due to a change in host configuration, the controller will stop creating new new Jobs and will create a system event with the reason UnknownTimeZone. More information can be found in https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones";
const SUSPEND: &str = "This flag tells the controller to suspend subsequent executions, it does not apply to already started executions.  Defaults to false.";
const ACTIVE: &str = "A list of pointers to currently running jobs.";
const LAST_SCHEDULE: &str = "Information when was the last time the job was successfully scheduled.";

fn is_suspended(cron: &Value) -> &'static str {
    match cron.at("spec").boolean("suspend") {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}

struct CronJob;

impl Strategy for CronJob {
    fn default(&self, cron: &mut Value) {
        let spec = cron.object_mut("spec");
        spec.or_text("concurrencyPolicy", "Allow");
        spec.or_insert("suspend", false);
        spec.or_insert("successfulJobsHistoryLimit", 3);
        spec.or_insert("failedJobsHistoryLimit", 1);
        let template = spec.object_mut("jobTemplate");
        template.object_mut("metadata");
        job::default_template(template.object_mut("spec"));
    }

    fn prepare_for_create(&self, cron: &mut Value) {
        cron.set("status", json!({}));
        drop_disabled(cron);
    }

    fn validate(&self, cron: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(cron, &mut errors);
        errors
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
        drop_disabled(new);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
    }
}

fn drop_disabled(cron: &mut Value) {
    template::drop_disabled(cron.object_mut("spec").object_mut("jobTemplate").object_mut("spec"));
}
