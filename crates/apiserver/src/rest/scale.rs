//! The number of replicas by itself.

use http::{Response, StatusCode};

use super::Call;
use crate::body::Body;
use crate::status::Status;

pub(crate) async fn get(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let _ = (call, StatusCode::OK);
    Err(Status::method_not_allowed())
}

pub(crate) async fn update(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let _ = call;
    Err(Status::method_not_allowed())
}

pub(crate) async fn patch(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let _ = call;
    Err(Status::method_not_allowed())
}
