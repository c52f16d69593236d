//! What the server creates in its own name while it answers somebody: the same way in, but for admission's
//! changes.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::{Call, create};
use crate::auth::User;
use crate::chain::Context;
use crate::negotiate::Output;
use crate::options::WriteOptions;
use crate::query::Query;
use crate::registry::Served;
use crate::server::Server;
use crate::status::Status;

/// Stores an object of the cluster.
pub(crate) async fn insert(server: &Server, served: &Arc<Served>, object: Value) -> Result<(), Status> {
    let (user, query, context) = (User::system("system:apiserver"), Query::parse(""), Context::default());
    let call = Call {
        server,
        user: &user,
        served,
        subresource: None,
        namespace: None,
        name: None,
        query: &query,
        headers: &HeaderMap::new(),
        body: &Bytes::new(),
        output: Output::JSON,
        context: &context,
        now: server.now(),
    };
    // Boxed, for what is being answered may have come the same way.
    Box::pin(create::insert(&call, object, &WriteOptions::default())).await?;
    Ok(())
}
