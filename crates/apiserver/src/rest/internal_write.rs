//! Objects that the server itself creates while handling a request: on the usual path, but without admission's
//! mutations.

use std::sync::Arc;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};
use serde_json::Value;

use super::{Call, create, ownership};
use crate::auth::User;
use crate::chain::Context;
use crate::loopback;
use crate::negotiate::Output;
use crate::options::WriteOptions;
use crate::query::Query;
use crate::registry::Served;
use crate::server::Server;
use crate::status::Status;

/// Stores a cluster-scoped object.
pub(crate) async fn insert(server: &Server, served: &Arc<Served>, mut object: Value) -> Result<(), Status> {
    let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(loopback::NAME))]);
    let (user, query, context) = (User::system("system:apiserver"), Query::parse(""), Context::default());
    let call = Call {
        server,
        user: &user,
        served,
        subresource: None,
        namespace: None,
        name: None,
        subpath: "",
        query: &query,
        headers: &headers,
        body: &Bytes::new(),
        output: Output::JSON,
        context: &context,
        now: server.now(),
    };
    let fields = ownership::note_create(&call, &mut object).await?;
    // Boxed, because the request being handled may be a create too, which makes the future recursive.
    Box::pin(create::insert(&call, object, fields, &WriteOptions::default())).await?;
    Ok(())
}
