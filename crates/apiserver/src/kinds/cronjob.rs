//! CronJobs.

use serde_json::{Value, json};

use super::pod::template;
use super::{BATCH, entry, job, metadata};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::{Lifecycle, Semantics, Validation};
use crate::table::{Column, time_since};
use crate::validation::{choice, nonnegative_field};

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
        semantics: Semantics::with_status(|| json!({})),
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

impl Lifecycle for CronJob {
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
        drop_disabled(cron);
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        drop_disabled(new);
    }
}

impl Validation for CronJob {
    fn validate(&self, cron: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(cron, &mut errors);
        check_spec(cron.at("spec"), &Value::Null, &mut errors);
        let name = cron.at("metadata").text("name");
        if name.len() > NAME_BYTES {
            let detail = format!("must be no more than {NAME_BYTES} characters");
            errors.invalid(&Path::root("metadata").child("name"), name, detail);
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_spec(new.at("spec"), old.at("spec"), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        if old.is_none() {
            template::warn_of_name(new, &mut found);
        }
        if old.is_none_or(|old| self.changes_generation(new, old)) {
            let path = Path::root("spec");
            let path = path.child("jobTemplate");
            let spec = new.at("spec").at("jobTemplate").at("spec");
            job::warn_of_spec(spec, &path.child("spec"), &mut found);
        }
        if old.is_some() && new.at("spec").text("schedule").contains("TZ") {
            found.push(ZONE_IN_SCHEDULE.into());
        }
        found
    }
}

/// Maximum name length: a job's name appends eleven bytes, with a limit of 63.
const NAME_BYTES: usize = 52;
const ZONE_IN_SCHEDULE: &str = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";

fn check_spec(spec: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    check_schedule(spec, old, &path.child("schedule"), errors);
    nonnegative_field(spec, "startingDeadlineSeconds", &path, errors);
    if spec.at("timeZone") != old.at("timeZone") {
        check_time_zone(spec.at("timeZone").as_str(), &path.child("timeZone"), errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    choice(spec.text("concurrencyPolicy"), &policies, &path.child("concurrencyPolicy"), errors);
    check_job_template(spec, old, &path.child("jobTemplate").child("spec"), errors);
    nonnegative_field(spec, "successfulJobsHistoryLimit", &path, errors);
    nonnegative_field(spec, "failedJobsHistoryLimit", &path, errors);
}

/// Validates the schedule. The time zone has its own field; existing schedules with a zone are tolerated.
fn check_schedule(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let schedule = spec.text("schedule");
    if schedule.is_empty() {
        return errors.required(path, "");
    }
    if let Err(complaint) = schedule.parse::<setpoint_cron::Schedule>() {
        errors.invalid(path, schedule, complaint.to_string());
    }
    if !schedule.contains("TZ") {
        return;
    }
    if !old.text("schedule").contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(path, schedule, detail);
    } else if spec.has("timeZone") {
        errors.invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    }
}

fn check_time_zone(zone: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    let Some(zone) = zone else { return };
    if zone.is_empty() {
        return errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    }
    let fine = |b: u8| b.is_ascii_alphanumeric() || b".-_+".contains(&b);
    let is_part = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(fine)
    };
    if !zone.split('/').all(is_part) {
        return errors.invalid(path, zone, format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, detail);
    }
    if zone != "Local" && setpoint_cron::time_zone(zone).is_none() {
        errors.invalid(path, zone, format!("unknown time zone {zone}"));
    }
}

/// Validates the job template. Jobs get their selectors on creation, so it must not have one.
fn check_job_template(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let spec = spec.at("jobTemplate").at("spec");
    job::validation::check_common(spec, old.at("jobTemplate").at("spec"), path, errors);
    if spec.has("selector") {
        let detail = "`selector` will be auto-generated";
        errors.invalid(&path.child("selector"), spec.at("selector").clone(), detail);
    }
    if spec.flag("manualSelector") {
        errors.not_supported(&path.child("manualSelector"), true, &["nil", "false"]);
    }
}

fn drop_disabled(cron: &mut Value) {
    template::drop_disabled(cron.object_mut("spec").object_mut("jobTemplate").object_mut("spec"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn cron(change: impl FnOnce(&mut Value)) -> Value {
        let mut cron = json!({"metadata": {}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {
            "metadata": {}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}});
        change(cron.object_mut("spec"));
        cron
    }

    #[test]
    fn a_schedule_is_one_and_its_zone_exists() {
        check::create(&CronJob, cron(|_| ()), &[]);
        check::create(&CronJob, cron(|spec| spec.set("timeZone", "Europe/Berlin")), &[]);
        check::create(
            &CronJob,
            cron(|spec| {
                spec.set("schedule", "x");
                spec.set("timeZone", "No/Where");
                spec.set("concurrencyPolicy", "X");
                spec.set("failedJobsHistoryLimit", -1);
            }),
            &[
                "Invalid spec.schedule",
                "Invalid spec.timeZone",
                "NotSupported spec.concurrencyPolicy",
                "Invalid spec.failedJobsHistoryLimit",
            ],
        );
    }

    #[test]
    fn a_time_zone_in_an_existing_schedule_is_tolerated() {
        let zoned = cron(|spec| spec.set("schedule", "TZ=UTC 0 0 * * *"));
        check::create(&CronJob, zoned.clone(), &["Invalid spec.schedule"]);
        check::update(&CronJob, zoned.clone(), &zoned, &[]);
        let mut both = zoned.clone();
        both["spec"]["timeZone"] = "Etc/UTC".into();
        check::update(&CronJob, both, &zoned, &["Invalid spec.schedule"]);
    }

    #[test]
    fn the_template_is_that_of_a_job_without_a_selector() {
        let mut selecting = cron(|_| ());
        selecting["spec"]["jobTemplate"]["spec"]["selector"] = json!({});
        selecting["spec"]["jobTemplate"]["spec"]["manualSelector"] = true.into();
        selecting["spec"]["jobTemplate"]["spec"]["backoffLimit"] = (-1).into();
        let path = "spec.jobTemplate.spec";
        check::create(
            &CronJob,
            selecting,
            &[
                &format!("Invalid {path}.backoffLimit"),
                &format!("Invalid {path}.selector"),
                &format!("NotSupported {path}.manualSelector"),
            ],
        );
    }
}
