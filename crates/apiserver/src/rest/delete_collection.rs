//! Deletions of all objects of a selection, one by one.

use http::Response;

use super::{Call, delete, list};
use crate::body::Body;
use crate::options::{DeleteOptions, ListOptions};
use crate::selector::{name_of, namespace_of};
use crate::status::Status;

pub(crate) async fn delete_collection(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let list_options = ListOptions::parse(call.query, call.namespace, false)?;
    let choice = list::choose(call, &list_options)?;
    let options = delete::options(call)?;
    let found = list::find(call, &list_options, &choice).await?;
    for record in &found.records {
        let name = name_of(record).to_string();
        let namespace = Some(namespace_of(record)).filter(|_| call.served.kind.is_namespaced());
        let one = Call { namespace, ..*call };
        delete_one(&one, &name, record.clone(), &options).await?;
    }
    list::answer(call, found)
}

async fn delete_one(
    call: &Call<'_>,
    name: &str,
    record: std::sync::Arc<setpoint_store::Record>,
    options: &DeleteOptions,
) -> Result<(), Status> {
    match delete::remove(call, name, record, options).await {
        Ok(_) => Ok(()),
        Err(status) if status.is_not_found() => Ok(()),
        Err(status) => Err(status),
    }
}
