//! Reads a single object.

use http::{Response, StatusCode};

use super::{Call, list, respond};
use crate::body::Body;
use crate::status::Status;

pub(crate) async fn get(call: &Call<'_>) -> Result<Response<Body>, Status> {
    if call.query.flag("export") == Some(true) {
        return Err(Status::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    call.name()?;
    let version = call.query.get("resourceVersion").unwrap_or("");
    let record = match list::parse_revision(version).map_err(Status::unknown)? {
        Some(revision) => {
            list::wait_for(call, revision).await?;
            call.record_at(None).await?
        }
        None => call.record().await?,
    };
    respond::record(call, StatusCode::OK, &record).await
}
