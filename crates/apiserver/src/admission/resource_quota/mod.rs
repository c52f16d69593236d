//! Quotas: charges a new object to its namespace's quotas before it is stored.
//!
//! First checks all matching quotas, then charges each with a compare-and-swap on its status: however many objects are
//! created concurrently, no more are admitted than the quota allows. If the create then fails, the quota controller's
//! next recount reverts the charge. Resources that are limited by configuration need a quota.

mod limited;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_quota::{Evaluator, Item, Resources, Scope, Scopes, must_specify};
use setpoint_store::{Change, Error, Expect, ListOptions, Record, Write};

use super::{Operation, Plugin, Review};
use crate::apply::{Live, ManagedFields};
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;
use crate::metadata;
use crate::registry::Served;
use crate::rest::ownership;
use crate::status::Status;

pub use limited::ResourceQuotaConfiguration;
use limited::Uncovered;

#[derive(Default)]
pub struct ResourceQuota(ResourceQuotaConfiguration);

impl ResourceQuota {
    pub fn new(configuration: ResourceQuotaConfiguration) -> Self {
        Self(configuration)
    }
}

/// Maximum attempts to charge a quota that keeps changing: that many creations in the namespace would have to overtake
/// this one.
const ATTEMPTS: usize = 128;

impl Plugin for ResourceQuota {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.namespace.is_some() && review.operation != Operation::Delete && has_usage(review)
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        let (served, quotas) = quotas(review).await?;
        if quotas.is_empty() && self.0.is_empty() {
            return Ok(());
        }
        let kind = &review.served.kind;
        let Some(evaluator) = Evaluator::of(&kind.group, &kind.plural) else { return Ok(()) };
        if !counts(review, &evaluator, object, old) {
            return Ok(());
        }
        let demand = Demand::new(review, &evaluator, object, old)?;
        let known: Vec<Value> =
            quotas.iter().map(|record| served.decode_bare(record)).collect::<Result<_, _>>()?;
        demand.check_covered(&self.0, &known)?;
        for quota in &known {
            demand.ask(quota)?;
        }
        if !review.dry_run {
            for record in quotas {
                demand.charge(&served, record).await?;
            }
        }
        Ok(())
    }
}

/// Whether what is written has a usage. The status of a claim has one: the storage that it was allocated.
fn has_usage(review: &Review<'_>) -> bool {
    let kind = &review.served.kind;
    match review.subresource {
        None | Some(Subresource::Resize) => true,
        Some(Subresource::Status) => kind.group.is_empty() && kind.plural == "persistentvolumeclaims",
        Some(_) => false,
    }
}

/// Returns the quotas in the namespace; usually none.
async fn quotas(review: &Review<'_>) -> Result<(Arc<Served>, Vec<Arc<Record>>), Status> {
    let server = review.server;
    let registry = server.registry.snapshot();
    let Some(served) = registry.resource("", "v1", "resourcequotas") else {
        return Err(Status::internal("quotas are not served"));
    };
    let page = server.store.list(&served.range(review.namespace), ListOptions::default()).await;
    Ok((served.clone(), page.map_err(|why| server.refusal(why))?.records))
}

/// Whether this request can change the usage.
fn counts(review: &Review<'_>, evaluator: &Evaluator, object: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return true };
    let deadline = |pod: &Value| {
        pod.at("spec").count("activeDeadlineSeconds") >= 0 && pod.at("spec").has("activeDeadlineSeconds")
    };
    match evaluator {
        Evaluator::Pods if review.subresource == Some(Subresource::Resize) => true,
        Evaluator::Pods => deadline(object) != deadline(old),
        Evaluator::Services | Evaluator::Claims => true,
        Evaluator::DeviceClaims | Evaluator::Objects(_) => false,
    }
}

/// The resources a request needs from the quotas.
struct Demand<'a> {
    review: &'a Review<'a>,
    evaluator: &'a Evaluator,
    object: &'a Value,
    item: Item,
    usage: Resources,
    /// The previous object, and the increase in usage.
    before: Option<(Item, Resources)>,
}

impl<'a> Demand<'a> {
    fn new(
        review: &'a Review<'_>,
        evaluator: &'a Evaluator,
        object: &'a Value,
        old: Option<&Value>,
    ) -> Result<Self, Status> {
        let now = review.server.now();
        let read = |object: &Value| evaluator.read(object).map_err(Status::internal);
        let item = read(object)?;
        let usage = item.usage(now);
        let before = match old {
            None => None,
            Some(old) => {
                let old = read(old)?;
                let more = usage.minus(&old.usage(now));
                Some((old, positive(&more)))
            }
        };
        Ok(Self { review, evaluator, object, item, usage, before })
    }

    /// Fails if the request consumes more of something that needs a quota, and no quota covers it.
    fn check_covered(&self, limited: &ResourceQuotaConfiguration, quotas: &[Value]) -> Result<(), Status> {
        let kind = &self.review.served.kind;
        let needs = limited.needs(&kind.group, &kind.plural, &self.item, &self.usage);
        let more = self.before.as_ref().map_or_else(|| positive(&self.usage), |(_, more)| more.clone());
        if needs.is_empty() || more.is_empty() {
            return Ok(());
        }
        let (mut resources, mut scopes): (BTreeSet<String>, Vec<Scope>) = Default::default();
        for quota in quotas {
            let of_quota = Scopes::deserialize(quota.at("spec")).unwrap_or_default();
            scopes.extend(of_quota.all().filter(|scope| self.item.matches(scope)));
            if self.item.is_in(&of_quota) {
                let hard = amounts(quota.at("status").at("hard"));
                let counted = hard.names().filter(|resource| self.evaluator.counts(resource));
                resources.extend(counted.map(str::to_owned));
            }
        }
        needs.check(&resources, &scopes).map_err(|uncovered| match uncovered {
            Uncovered::Resources(why) => self.review.forbidden(Some(self.object), why),
            Uncovered::Scopes(why) => Status::unknown(why),
        })
    }

    /// Returns the usage of a quota after this request, if the quota applies to it; fails if it would be exceeded.
    fn ask(&self, quota: &Value) -> Result<Option<Resources>, Status> {
        self.plan(quota).map_err(|why| self.review.forbidden(Some(self.object), why))
    }

    fn plan(&self, quota: &Value) -> Result<Option<Resources>, String> {
        let name = metadata::of(quota).text("name");
        let scopes = Scopes::deserialize(quota.at("spec")).unwrap_or_default();
        let hard = amounts(quota.at("status").at("hard"));
        let restricted = hard.only(|resource| self.evaluator.counts(resource));
        if restricted.is_empty() || !self.item.is_in(&scopes) {
            return Ok(None);
        }
        if let (Evaluator::Pods, Some(why)) = (self.evaluator, must_specify(self.object, restricted.names()))
        {
            return Err(format!("failed quota: {name}: {why}"));
        }
        let used = amounts(quota.at("status").at("used"));
        if restricted.names().any(|resource| !used.contains(resource)) {
            let names: Vec<&str> = restricted.names().collect();
            return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
        }
        let more = self.more(&scopes).only(|resource| hard.contains(resource));
        if more.is_empty() {
            return Ok(None);
        }
        let mut after = used.clone();
        after.add(&more);
        let exceeded = after.only(|resource| more.contains(resource)).beyond(&hard);
        // A status says what has happened already.
        let is_status = self.review.subresource == Some(Subresource::Status);
        if is_status || exceeded.is_empty() {
            return Ok(Some(after));
        }
        let of = |amounts: &Resources| shown(&amounts.only(|resource| exceeded.contains(resource)));
        Err(format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            of(&more),
            of(&used),
            of(&hard)
        ))
    }

    /// Returns the additional usage: the increase if the quota already applied to the old object, else the full usage.
    fn more(&self, scopes: &Scopes) -> Resources {
        match &self.before {
            Some((before, more)) if before.is_in(scopes) => more.clone(),
            _ => positive(&self.usage),
        }
    }

    async fn charge(&self, served: &Served, record: Arc<Record>) -> Result<(), Status> {
        let mut record = record;
        for _ in 0..ATTEMPTS {
            self.review.check_awaited()?;
            let old = served.decode_bare(&record)?;
            let Some(after) = self.ask(&old)? else { return Ok(()) };
            let mut quota = old.clone();
            quota.object_mut("status").set("used", json!(after));
            let server = self.review.server;
            let live = Live { object: &old, fields: &ManagedFields::of(&record) };
            let fields = ownership::note_own_status(server, served, live, &mut quota, server.now());
            let change = Change::Put { payload: served.encode(&quota, &fields), ttl: None };
            let expect = Expect::Revision(record.modified);
            let write = Write { key: record.key.clone(), expect, change };
            match self.review.server.store.commit(write).await {
                Ok(_) | Err(Error::Conflict { current: None }) => return Ok(()),
                Err(Error::Conflict { current: Some(current) }) => record = current,
                Err(why) => return Err(self.review.server.refusal(why)),
            }
        }
        let name = metadata::of(self.object).text("name");
        Err(Status::conflict(self.review.served.named(), name, "the quota of the namespace keeps changing"))
    }
}

fn amounts(list: &Value) -> Resources {
    Resources::deserialize(list).unwrap_or_default()
}

fn positive(amounts: &Resources) -> Resources {
    amounts.only(|resource| amounts.get(resource).is_some_and(|amount| amount.sign() > 0))
}

/// Formats amounts: `cpu=1,pods=2`.
fn shown(amounts: &Resources) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}
