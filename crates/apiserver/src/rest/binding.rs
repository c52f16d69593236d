//! Pods onto nodes.

use http::Response;

use super::Call;
use crate::body::Body;
use crate::status::Status;

pub(crate) async fn create(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let _ = call;
    Err(Status::method_not_allowed())
}
