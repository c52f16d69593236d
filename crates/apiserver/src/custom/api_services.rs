//! The APIServices of custom groups: one for every group version that CRDs define, deleted with the last CRD.

use std::collections::BTreeSet;

use setpoint_store::{Change, Error, Expect, ListOptions, Write};

use crate::facts::Facts;
use crate::kinds::apiservice::{AUTO_MANAGED, custom_service};
use crate::registry::Gvr;
use crate::rest::own_write;
use crate::server::Server;
use crate::status::Status;

/// Creates missing APIServices and deletes obsolete ones.
pub(super) async fn settle(server: &Server) -> Result<(), Status> {
    let Ok(served) = server.served(&Gvr::new("apiregistration.k8s.io", "v1", "apiservices")) else {
        return Ok(());
    };
    let registry = server.registry.snapshot();
    let custom = registry.all().filter(|served| served.kind.custom.is_some());
    let mut missing: BTreeSet<(String, String)> =
        custom.map(|served| (served.kind.group.clone(), served.kind.version.clone())).collect();
    let page = server.store.list(&served.resource.all(), ListOptions::default()).await;
    for record in page.map_err(|why| server.refusal(why))?.records {
        let name: &str = &record.key.path;
        let is_wanted = name
            .split_once('.')
            .is_some_and(|(version, group)| missing.remove(&(group.to_owned(), version.to_owned())));
        if is_wanted || Facts::of(&record, &served).label(AUTO_MANAGED) != Some("true") {
            continue;
        }
        let expect = Expect::Revision(record.modified);
        let write = Write { key: record.key.clone(), expect, change: Change::Delete };
        match server.store.commit(write).await {
            Ok(_) | Err(Error::Conflict { .. }) => {}
            Err(why) => return Err(server.refusal(why)),
        }
    }
    for (group, version) in missing {
        own_write::insert(server, &served, custom_service(&group, &version)).await?;
    }
    Ok(())
}
